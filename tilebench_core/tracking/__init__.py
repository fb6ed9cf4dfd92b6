"""MLflow as a view of a campaign's records: what was measured is on disk already, and can be sent at any time."""

from tilebench_core.tracking.options import TrackingOptions, results_store
from tilebench_core.tracking.page import known_stores, page_url, server_command, sync_command, ui_command
from tilebench_core.tracking.sync import SyncResult, Unsent, sync_campaign

__all__ = [
    "SyncResult",
    "TrackingOptions",
    "Unsent",
    "known_stores",
    "page_url",
    "results_store",
    "server_command",
    "sync_campaign",
    "sync_command",
    "ui_command",
]
