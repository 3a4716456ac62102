"""How Sphinx builds the site. Nothing is fetched: fonts and scripts are in the pages themselves."""

from __future__ import annotations

import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("MPLBACKEND", "Agg")
# One thread per product: pages are built side by side with whatever else the machine does.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import rankrange  # noqa: E402

project = "rankrange"
author = "The rankrange developers"
copyright = "The rankrange developers, BSD 3-Clause licence"
version = release = rankrange.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx.ext.viewcode",
    "linked_names",
    "plain_docstrings",
]
exclude_patterns = ["_build", "_ext", "gallery/**/*.ipynb"]
templates_path = ["_templates"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
nitpicky = False
highlight_language = (
    "none"  # a fence without a language holds commands and their output; Python fences name the language
)
suppress_warnings = ["config.cache"]

# Markdown: headings can be linked to, as the guides do; boxes and grids for the first pages.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# The reference. Members are listed by the templates: those that this package defines, not what scikit-learn hands down.
autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
numpydoc_class_members_toctree = False

copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = ">>> |\\.\\.\\. |\\$ "
copybutton_prompt_is_regexp = True


def own_methods(module: str, name: str) -> list[str]:
    """The public methods of a class that code of this package defines and documents."""
    found = getattr(sys.modules.get(module) or __import__(module, fromlist=["_"]), name)
    methods = []
    for attribute in dir(found):
        member = inspect.getattr_static(found, attribute)
        function = getattr(member, "__func__", member)
        home = getattr(function, "__module__", None) or getattr(getattr(function, "fget", None), "__module__", "")
        documented = (getattr(function, "__doc__", None) or "").strip()
        public = not attribute.startswith("_") and callable(getattr(found, attribute, None))
        if public and documented and not inspect.isclass(member) and str(home).startswith("rankrange"):
            methods.append(attribute)
    return methods


autosummary_context = {"own_methods": own_methods}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",
    "within_subsection_order": "gallery_order.InReadingOrder",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("rankrange",),
    "reference_url": {"rankrange": None},
    "inspect_global_variables": False,
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "image_srcset": ["2x"],
    "abort_on_example_error": True,
    "plot_gallery": os.environ.get("RANKRANGE_DRAW_GALLERY", "1") == "1",
}
html_theme = "pydata_sphinx_theme"
html_title = "rankrange"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_last_updated_fmt = None
html_logo = "_static/mark.svg"
html_favicon = "_static/mark.svg"
html_theme_options: dict[str, Any] = {
    "logo": {"text": "rankrange", "alt_text": "rankrange, the start page"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 7,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "back_to_top_button": False,
}
html_sidebars = {"index": []}


def _link_within_the_site(app: Any, path: Path, docname: str, content: list[str]) -> None:
    """CONTRIBUTING.md links to its neighbours in the repository; on the site these are pages."""
    content[0] = content[0].replace("](CHANGELOG.md)", "](changelog.md)")


def _without_links_back(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Source pages link back to the reference, but where two names share a source one of these links leads nowhere."""
    if page.startswith("_modules/") and "body" in context:
        context["body"] = re.sub(r'<a class="viewcode-back"[^>]*>.*?</a>', "", context["body"])


def setup(app: Any) -> None:
    """Mend the links of included files and of source pages."""
    app.connect("include-read", _link_within_the_site)
    app.connect("html-page-context", _without_links_back)
