//! The shapes of what other crates read and write themselves, as the document shows them.

use everstep_protocol::start::StartOutcome;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ObjectBuilder, RefOr, Schema, Type,
        schema::{AdditionalProperties, AnyOfBuilder, SchemaType},
    },
};

use crate::http::view::InstanceName;

/// Implements what a schema needs that is no struct.
macro_rules! shape {
    ($(#[$doc:meta])* $name:ident = $schema:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(in crate::http) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                RefOr::T(Schema::from($schema))
            }
        }

        impl ToSchema for $name {}
    };
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// Milliseconds, or text such as `30 days`.
fn duration() -> AnyOfBuilder {
    AnyOfBuilder::new()
        .item(ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)))
        .item(text().examples(["30 days"]))
}

shape! {
    /// To which build an instance is pinned.
    Pin = AnyOfBuilder::new()
        .description(Some("`true`: the build of the worker that takes it up first; or the name of a build"))
        .item(ObjectBuilder::new().schema_type(Type::Boolean).enum_values(Some([true])))
        .item(text().pattern(Some("^[a-z0-9_-]{1,50}$")))
        .build()
}

shape! {
    /// How long an instance is kept after its end.
    Retention = AnyOfBuilder::new()
        .description(Some("A duration for both ends, or one for each; the workflow's own where it is absent"))
        .item(duration())
        .item(
            ObjectBuilder::new()
                .property("complete", duration())
                .property("failed", duration())
                .additional_properties(Some(AdditionalProperties::FreeForm(false))),
        )
        .build()
}

shape! {
    /// What an instance can be found by.
    Attributes = ObjectBuilder::new()
        .description(Some("At most 32: a number, a text of at most 256 characters, true or false under each name (rule P37)"))
        .property_names(Some(text().pattern(Some("^[A-Za-z0-9_.-]{1,64}$"))))
        .additional_properties(Some(AdditionalProperties::from(
            ObjectBuilder::new()
                .schema_type(SchemaType::from_iter([Type::String, Type::Number, Type::Boolean]))
                .max_length(Some(256)),
        )))
        .build()
}

/// A token that a start claims.
#[derive(Debug, ToSchema)]
#[schema(as = StartHook)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "only its shape is shown")]
pub(in crate::http) struct Hook {
    /// The token: 1 to 256 characters, none of them a control character.
    #[schema(pattern = r"^[^\u0000-\u001f\u007f-\u009f]{1,256}$")]
    token: String,
    /// For how long it is the instance's at least: milliseconds, a duration, or a moment.
    retention: Option<HookRetention>,
    /// What whoever looks the token up reads.
    #[schema(value_type = Option<Value>)]
    metadata: Option<()>,
    /// The JSON Schema that every payload must fit.
    #[schema(value_type = Option<Value>)]
    schema: Option<()>,
}

shape! {
    /// How long a token is kept.
    HookRetention = duration().build()
}

/// What became of one start of a batch.
#[derive(Debug, ToSchema)]
#[allow(dead_code, reason = "only its shape is shown")]
pub(in crate::http) struct StartResult {
    outcome: Outcome,
    workflow: Option<String>,
    id: Option<String>,
    /// The status of the instance that existed before.
    status: Option<String>,
    /// The code of a rejection or conflict.
    code: Option<String>,
    message: Option<String>,
    /// Who has the token that the start asks for.
    owner: Option<InstanceName>,
    /// Sending the same again does no harm and may help.
    retry_safe: bool,
}

shape! {
    /// What became of a start.
    Outcome = text().enum_values(Some(outcomes())).build()
}

fn outcomes() -> Vec<String> {
    use StartOutcome as O;
    let all = [O::Created, O::Exists, O::Conflict, O::Accepted, O::Rejected, O::Unknown];
    all.iter().filter_map(|outcome| serde_json::to_value(outcome).ok()?.as_str().map(str::to_owned)).collect()
}
