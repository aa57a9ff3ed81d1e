//! What a worker can run: workflows and remote functions, their types hidden.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use everstep_protocol::Payload;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::host::{Body, StepFn, begin, step_fn};
use crate::{Error, Outcome, Step, Workflow};

/// A workflow: a name and a function. `#[workflow]` makes one of an async function.
pub trait Definition: Send + Sync + 'static {
    /// Its name, checked when it is registered.
    fn name(&self) -> &str;

    /// The body of one instance, not polled yet.
    fn begin(&self, cx: Workflow, input: &Payload) -> Body;
}

/// A workflow by its name: the name itself, or what `#[workflow]` makes, whether or not this worker serves it.
pub trait WorkflowRef {
    /// The name, checked where it is used.
    fn workflow_name(&self) -> &str;
}

impl<D: Definition> WorkflowRef for D {
    fn workflow_name(&self) -> &str {
        self.name()
    }
}

impl WorkflowRef for &str {
    fn workflow_name(&self) -> &str {
        self
    }
}

impl WorkflowRef for String {
    fn workflow_name(&self) -> &str {
        self
    }
}

impl WorkflowRef for &String {
    fn workflow_name(&self) -> &str {
        self
    }
}

/// A step function that a pool's workers run by its name.
pub trait RemoteFunction: Send + Sync + 'static {
    /// Its name, checked when it is registered.
    fn name(&self) -> &str;

    /// What runs one attempt with this input.
    fn run(&self, input: &Payload) -> StepFn;
}

/// A workflow of a plain function or closure.
pub(crate) struct FnDefinition<In, F> {
    name: String,
    function: Arc<F>,
    input: PhantomData<fn(In)>,
}

impl<In, F> FnDefinition<In, F> {
    pub(crate) fn new(name: &str, function: F) -> Self {
        Self { name: name.to_owned(), function: Arc::new(function), input: PhantomData }
    }
}

impl<In, Out, E, F, Fut> Definition for FnDefinition<In, F>
where
    In: DeserializeOwned + 'static,
    Out: Outcome<In>,
    E: Into<Error>,
    F: Fn(Workflow, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out, E>> + Send + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn begin(&self, cx: Workflow, input: &Payload) -> Body {
        let function = self.function.clone();
        begin(&self.name, cx, input, move |cx, input| function(cx, input))
    }
}

/// A remote function of a plain function or closure.
pub(crate) struct FnRemote<In, F> {
    name: String,
    function: Arc<F>,
    input: PhantomData<fn(In)>,
}

impl<In, F> FnRemote<In, F> {
    pub(crate) fn new(name: &str, function: F) -> Self {
        Self { name: name.to_owned(), function: Arc::new(function), input: PhantomData }
    }
}

impl<In, Out, E, F, Fut> RemoteFunction for FnRemote<In, F>
where
    In: DeserializeOwned + 'static,
    Out: Serialize,
    E: Into<Error>,
    F: Fn(Step, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out, E>> + Send + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, input: &Payload) -> StepFn {
        step_fn(format!("function {:?}", self.name), input.clone(), self.function.clone())
    }
}

impl fmt::Debug for dyn Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workflow {:?}", self.name())
    }
}

impl fmt::Debug for dyn RemoteFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "function {:?}", self.name())
    }
}
