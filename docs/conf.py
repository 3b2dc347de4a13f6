"""Settings of the documentation: ``sphinx-build -W --keep-going -b html docs docs/_build/html``."""

from __future__ import annotations

import sys
from pathlib import Path

import affinedp

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))
from public_names import public_names  # found only now

APPLICATIONS = ("control", "consensus", "tables", "flows")
PACKAGES = ("affinedp", *(f"affinedp.{name}" for name in APPLICATIONS))

project = "affinedp"
author = "The affinedp authors"
copyright = "the affinedp authors"
release = version = affinedp.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
    "code_blocks",
    "commands",
    "mathml",
    "public_names",
]
exclude_patterns = ["_build", "gallery", "**/README.md"]
templates_path = ["_templates"]
nitpicky = True
smartquotes = False  # options have two hyphens
nitpick_ignore_regex = [("py:mod", r"affinedp\..*")]  # modules without a page

# Markdown
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = True
html_math_renderer = "mathml"

# reference from docstrings
autosummary_generate = True
autosummary_context = {"exported": {package: public_names(package) for package in PACKAGES}}
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# gallery
sphinx_gallery_conf = {
    "examples_dirs": ["gallery"],
    "gallery_dirs": ["generated/gallery"],
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "show_memory": False,
    "min_reported_time": 3600,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
}

# pages
html_theme = "pydata_sphinx_theme"
html_title = f"affinedp {release}"
html_static_path = ["_static"]
html_css_files = ["affinedp.css"]
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("errata", "versioning", "changelog")}
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
