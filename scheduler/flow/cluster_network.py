"""The flow network of a cluster under a policy, from round to round: changes in, placements out."""

from __future__ import annotations

from scheduler.flow.cluster_changes import ClusterChanges, Explanation, Placed, Share, Way

__all__ = ["ClusterChanges", "Explanation", "Placed", "Share", "Way"]
