"""A faster interpreter of Triton, which patches its language at every call of a device function: once is enough."""

from triton.runtime import interpreter


def patch_once_per_launch():
    """Patch the language of a module once in every launch, which takes a third of the time.

    The first patch of a launch is undone at its end, and so is what is remembered here. Where Triton has no such
    function any more, its interpreter runs as it is.
    """
    patch = getattr(interpreter, "_patch_lang", None)
    if patch is None:
        return
    patched = set()

    class Nothing:
        def restore(self):
            pass

    def patch_once(function):
        module = id(function.__globals__)
        if module in patched:
            return Nothing()
        scope, outermost = patch(function), not patched
        patched.add(module)
        if outermost and scope is not None:
            undo = scope.restore
            scope.restore = lambda: (patched.clear(), undo())
        return scope

    interpreter._patch_lang = patch_once
