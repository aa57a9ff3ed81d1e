//! What each route needs: the one table. A route that is not in it needs more than anybody has by mistake.

use everstep_protocol::Role;

/// What a request needs to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing: it says nothing of any instance, or has a secret of its own.
    Nothing,
    /// An access token of at least this role, for the namespace of the path; for all, where the path has none.
    Role(Role),
}

/// What a method of a route needs.
#[allow(clippy::match_same_arms, reason = "each arm is a group of routes with its reason")]
pub(super) fn of(method: &str, route: &str) -> Need {
    use Role::{Admin, Operator, Producer, Viewer};
    // A route that answers GET answers HEAD as well.
    let method = if method == "HEAD" { "GET" } else { method };
    let role = match (method, route) {
        // Whether the process is well is no secret, and neither is what every installation serves.
        ("GET", "/healthz" | "/readyz" | "/openapi.json" | "/docs" | "/docs/" | "/docs/{*rest}") => {
            return Need::Nothing;
        }
        // Called from anywhere, by whoever has the hook's own token (rule H58).
        (_, "/hooks/{namespace}/{token}") => return Need::Nothing,

        ("GET", "/metrics" | "/v1/doctor") => Viewer,
        (
            "GET",
            "/v1/{namespace}/attention"
            | "/v1/{namespace}/breaches"
            | "/v1/{namespace}/bulk"
            | "/v1/{namespace}/bulk/{id}"
            | "/v1/{namespace}/hooks"
            | "/v1/{namespace}/hooks/{token}"
            | "/v1/{namespace}/instances"
            | "/v1/{namespace}/instances:watch"
            | "/v1/{namespace}/journals"
            | "/v1/{namespace}/ledger"
            | "/v1/{namespace}/rejected"
            | "/v1/{namespace}/schedules"
            | "/v1/{namespace}/schedules/{id}"
            | "/v1/{namespace}/schedules/{id}/changes"
            | "/v1/{namespace}/workflows/{workflow}/instances"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/attention"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/attention/{question}"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/journal"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/ledger"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/watch",
        ) => Viewer,

        (
            "POST",
            "/v1/{namespace}/hooks/{token}/resume"
            | "/v1/{namespace}/workflows/{workflow}/instances"
            | "/v1/{namespace}/workflows/{workflow}/instances:batch"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/events/{type}",
        ) => Producer,

        (
            "POST",
            "/v1/{namespace}/bulk"
            | "/v1/{namespace}/bulk/{id}/stop"
            | "/v1/{namespace}/schedules/{id}/backfill"
            | "/v1/{namespace}/schedules/{id}/backfill/stop"
            | "/v1/{namespace}/schedules/{id}/pause"
            | "/v1/{namespace}/schedules/{id}/resume"
            | "/v1/{namespace}/schedules/{id}/trigger"
            | "/v1/{namespace}/workflows/{workflow}/instances:operate"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/attention/{question}/resolve"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/cancel"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/pause"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/pin"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/restart"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/resume"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/retry"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/terminate"
            | "/v1/{namespace}/workflows/{workflow}/instances/{id}/unpin",
        )
        | ("PUT", "/v1/{namespace}/schedules/{id}")
        | (
            "DELETE",
            "/v1/{namespace}/schedules/{id}" | "/v1/{namespace}/workflows/{workflow}/instances/{id}",
        ) => Operator,

        ("GET", "/v1/{namespace}/audit")
        | ("GET" | "POST", "/v1/{namespace}/access-tokens")
        | ("DELETE", "/v1/{namespace}/access-tokens/{id}") => Admin,

        _ => return UNLISTED,
    };
    Need::Role(role)
}

/// Of what is not in the table.
pub(super) const UNLISTED: Need = Need::Role(Role::Admin);
