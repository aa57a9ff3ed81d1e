//! The parameters that `extract` reads, as the document shows them. The patterns say what the newtypes check.

use utoipa::{
    IntoParams,
    openapi::{
        ObjectBuilder, RefOr, Required, Schema, Type,
        path::{Parameter, ParameterBuilder, ParameterIn},
    },
};

use crate::http::{
    access_tokens::{AccessPath, ScopePath},
    attention::QuestionPath,
    extract::{BulkPath, EventPath, InstancePath, NamespacePath, Operation, WorkflowPath},
    hooks::HookPath,
    schedules::{SchedulePath, Whose},
};

type Parameters = Vec<Parameter>;

fn text(pattern: &str) -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).build().into()
}

fn in_path(name: &str, description: &str, pattern: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(description))
        .schema(Some(text(pattern)))
        .build()
}

fn namespace() -> Parameter {
    in_path("namespace", "The namespace; `default` where nobody has chosen one", r"^[a-z0-9_-]{1,50}$")
}

fn scope() -> Parameter {
    in_path("namespace", "The namespace; `*` for all", r"^([a-z0-9_-]{1,50}|\*)$")
}

fn workflow() -> Parameter {
    in_path("workflow", "The workflow's name", r"^[a-z0-9_-]{1,50}$")
}

fn id(what: &str) -> Parameter {
    in_path("id", what, r"^(?!\.{1,2}$)[A-Za-z0-9_.:-]{1,100}$")
}

/// A schedule's, which leaves room for a time behind it.
fn schedule() -> Parameter {
    in_path("id", "The schedule's id", r"^(?!\.{1,2}$)[A-Za-z0-9_.-]{1,60}$")
}

fn of_instance() -> Parameters {
    vec![namespace(), workflow(), id("The instance's id")]
}

fn with(mut parameters: Parameters, more: Parameter) -> Parameters {
    parameters.push(more);
    parameters
}

macro_rules! parameters {
    ($($extractor:ty => $parameters:expr;)+) => {
        $(
            impl IntoParams for $extractor {
                fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Parameters {
                    $parameters
                }
            }
        )+
    };
}

parameters! {
    NamespacePath => vec![namespace()];
    WorkflowPath => vec![namespace(), workflow()];
    InstancePath => of_instance();
    SchedulePath => vec![namespace(), schedule()];
    Whose => with(
        vec![namespace(), schedule()],
        ParameterBuilder::new()
            .name("by")
            .parameter_in(ParameterIn::Query)
            .required(Required::False)
            .description(Some("Who asks, for the record"))
            .schema(Some(text(r"^[^\u0000-\u001f\u007f-\u009f]{1,100}$")))
            .build(),
    );
    BulkPath => vec![namespace(), id("The id of the bulk operation")];
    EventPath => with(
        of_instance(),
        in_path("type", "The event's type", r"^(?!\.{1,2}$)[^\u0000-\u001f\u007f-\u009f]{1,100}$"),
    );
    QuestionPath => with(
        of_instance(),
        in_path("question", "`parked`, or the id of a question", r"^(parked|[1-9][0-9]{0,8}\.[1-9][0-9]{0,17})$"),
    );
    HookPath => vec![namespace(), in_path("token", "The hook's token", r"^[^\u0000-\u001f\u007f-\u009f]{1,256}$")];
    ScopePath => vec![scope()];
    AccessPath => vec![scope(), in_path("id", "The id of the access token", "^[0-9a-f]{32}$")];
    Operation => vec![
        ParameterBuilder::new()
            .name("Idempotency-Key")
            .parameter_in(ParameterIn::Header)
            .required(Required::False)
            .description(Some("By what a repetition of this request is known; generated if absent"))
            .schema(Some(text(r"^[\x21-\x7e]{1,100}$")))
            .build()
    ];
}
