"""Settings of the documentation: ``sphinx-build -W --keep-going -b html docs docs/_build/html``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import affinedp

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))
from public_names import public_names  # found only now

ROOMS = ("functions", "control", "consensus", "tables", "flows")
PACKAGES = ("affinedp", *(f"affinedp.{name}" for name in ROOMS))

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
    "light",
    "mathml",
    "public_names",
]
exclude_patterns = ["_build", "gallery", "**/README.md"]
templates_path = ["_templates"]
nitpicky = True
smartquotes = False  # options have two hyphens
nitpick_ignore_regex = [
    ("py:mod", r"affinedp\..*"),  # modules without a page
    ("py:class", r".* D\b.*|D\[k\].*"),  # what the docstrings of Mapping return
]

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
html_theme = "furo"
html_title = "affinedp"
html_logo = "_static/logo.svg"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_extra_path = ["versions.json"]
html_css_files = ["affinedp.css"]
html_js_files = [("affinedp.js", {"defer": "defer"})]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_last_updated_fmt = None
pygments_style = "tango"
pygments_dark_style = "monokai"


def repository() -> str:
    """Return where the sources live: where they are built, or came from; else nothing."""
    if "GITHUB_REPOSITORY" in os.environ:
        server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
        return f"{server}/{os.environ['GITHUB_REPOSITORY']}/"
    command = ["git", "-C", str(Path(__file__).parent), "remote", "get-url", "origin"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    address = asked.stdout.strip().removesuffix(".git")
    return f"{address}/" if address.startswith("https://github.com/") else ""


html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/links.html",
        "sidebar/scroll-end.html",
    ]
}
html_context = {"repository": repository(), "paper": "https://arxiv.org/abs/2601.14725"}
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#00639b"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#7cc6f0"},
}
if html_context["repository"]:
    html_theme_options |= {
        "source_repository": html_context["repository"],
        "source_branch": "main",
        "source_directory": "docs/",
    }
