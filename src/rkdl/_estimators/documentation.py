"""The link from an estimator's HTML representation to its page in the reference."""

from __future__ import annotations

import os


class DocumentationLink:
    """Mixin: "?" in a notebook links to the site whose address the environment variable RKDL_DOCS holds, if any."""

    _doc_link_module = "rkdl"

    @property
    def _doc_link_template(self) -> str:
        site = os.environ.get("RKDL_DOCS", "").rstrip("/")
        return f"{site}/generated/{{estimator_module}}.{{estimator_name}}.html" if site else ""
