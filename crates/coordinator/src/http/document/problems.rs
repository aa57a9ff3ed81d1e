//! The problems of a route, by status. Each group says its codes; docs/errors says what they mean.

use std::collections::BTreeMap;

use utoipa::{
    IntoResponses,
    openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder},
};

use crate::http::problem::PROBLEM_JSON;

/// A group of problems that a route names among its responses.
macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident { $($status:literal: $codes:literal),+ $(,)? })+) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(in crate::http) struct $name;

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    [$(($status, $codes)),+].into_iter().map(problem).collect()
                }
            }
        )+
    };
}

problems! {
    /// What every route may answer.
    Always {
        "400": "`path`, `name`, `query` or `header`: this part of the request breaks its rule",
        "401": "`unauthenticated`: the request has no access token that opens anything",
        "403": "`forbidden`: the access token is not enough; `not_from_here`: only this host is served, and no web page from elsewhere",
        "429": "`rate_limited`: the caller asks faster than one may",
        "500": "`broken` or `internal`: a person has to look",
        "503": "`unavailable`: store or broker are away; `unknown`: nobody knows whether it was done",
    }
    /// Of routes that read neither path nor store.
    Forbidden {
        "401": "`unauthenticated`: the request has no access token that opens anything",
        "403": "`forbidden`: the access token is not enough; `not_from_here`: only this host is served, and no web page from elsewhere",
        "429": "`rate_limited`: the caller asks faster than one may",
        "500": "`internal`: a person has to look",
    }
    /// Of probes.
    NotReady {
        "403": "`not_from_here`: only this host is served, and no web page from elsewhere",
        "503": "`not_ready`: the detail says what is missing",
    }
    /// Of routes that are about something that need not exist.
    NotFound {
        "404": "`not_found`, `hook_not_found` or `question_not_found`: what the path names does not exist",
    }
    /// Of routes that the state of an instance may forbid.
    Conflict {
        "409": "`conflict`, `hook_held`, `not_served`, `not_allowed`, `not_parked`, `not_asked`, `moved`, `event_id_taken` or \
            `resume_id_taken`: what is there does not allow it; nothing has changed",
    }
    /// Of routes with a body.
    BodyProblems {
        "400": "`path`, `name`, `query`, `header`, `body` or `unknown_field`: this part of the request breaks its rule",
        "413": "`too_large`: the body, or a payload in it, is over its limit",
        "415": "`content_type`: the body is not `application/json`",
        "422": "`input`, `attributes`, `hook`, `payload_misfit`, `batch`, `ids`, `schedule`, `access_token`, `rejected` or `refused`: it can be read, and is \
            not acceptable",
    }
    /// Of lists that are asked for by attributes.
    ByAttributes {
        "422": "`attributes`: an attribute that is asked for breaks its rule",
    }
    /// Of routes that put something in a mailbox, or take a place among the streams.
    Full {
        "429": "`mailbox_full`: the instance has too many unread events; `too_many_streams`: so many are served at once; \
            `rate_limited`: the caller asks faster than one may",
    }
}

fn problem((status, description): (&str, &str)) -> (String, RefOr<Response>) {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let response = ResponseBuilder::new().description(description).content(PROBLEM_JSON, content).build();
    (status.to_owned(), response.into())
}
