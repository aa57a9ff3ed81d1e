//! What one worker process can run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use everstep_protocol::{FunctionName, WorkflowName};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::definition::{Definition, FnDefinition, FnRemote, RemoteFunction};
use crate::{Error, Outcome, Step, Workflow};

/// The workflows and remote functions of one worker.
///
/// A bad or doubled name does not panic: it is kept, the first of two stays, and [`validate`](Registry::validate),
/// which the worker calls at start, returns all problems together.
///
/// ```
/// use everstep_sdk::{Error, Registry, Step, Workflow};
///
/// async fn make_label(_step: Step, address: String) -> Result<String, Error> {
///     Ok(format!("To: {address}"))
/// }
///
/// let registry = Registry::new()
///     .workflow_fn("greet", |cx: Workflow, name: String| async move {
///         cx.sleep("a moment", "1s").await?;
///         Ok::<_, Error>(format!("Hello, {name}!"))
///     })
///     .function("label", make_label);
/// registry.validate().unwrap();
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a registry does nothing until a worker is given it"]
pub struct Registry {
    workflows: BTreeMap<WorkflowName, Arc<dyn Definition>>,
    functions: BTreeMap<FunctionName, Arc<dyn RemoteFunction>>,
    pinned: BTreeSet<WorkflowName>,
    problems: Vec<String>,
}

/// All that is wrong with a registry. Trying again gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the registry is refused: {}", problems.join("; "))]
pub struct RegistryError {
    /// One sentence for each.
    pub problems: Vec<String>,
}

impl Registry {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a workflow made by `#[workflow]`.
    pub fn workflow(mut self, definition: impl Definition) -> Self {
        match WorkflowName::new(definition.name()) {
            Err(error) => self.problems.push(error.to_string()),
            Ok(name) if self.workflows.contains_key(&name) => {
                self.problems.push(format!("workflow {:?} is registered twice", name.as_str()));
            }
            Ok(name) => {
                self.workflows.insert(name, Arc::new(definition));
            }
        }
        self
    }

    /// Adds a workflow whose instances are pinned to the build that takes them up first: only workers of that build go on with
    /// them, until somebody unpins them. For code that changes in ways that open instances could not follow.
    ///
    /// ```
    /// use everstep_sdk::{Error, Registry, Workflow};
    ///
    /// let registry = Registry::new().pinned_workflow_fn("fulfil", |cx: Workflow, order: String| async move {
    ///     cx.sleep("cooling off", "14 days").await?;
    ///     Ok::<_, Error>(order)
    /// });
    /// assert_eq!(registry.pinned_names().count(), 1);
    /// ```
    pub fn pinned_workflow(mut self, definition: impl Definition) -> Self {
        if let Ok(name) = WorkflowName::new(definition.name()) {
            self.pinned.insert(name);
        }
        self.workflow(definition)
    }

    /// Adds a workflow of a plain async function or closure.
    pub fn workflow_fn<In, Out, E, F, Fut>(self, name: &str, function: F) -> Self
    where
        In: DeserializeOwned + 'static,
        Out: Outcome<In>,
        E: Into<Error>,
        F: Fn(Workflow, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, E>> + Send + 'static,
    {
        self.workflow(FnDefinition::new(name, function))
    }

    /// Adds a workflow of a plain async function or closure, pinned like one of [`pinned_workflow`](Self::pinned_workflow).
    pub fn pinned_workflow_fn<In, Out, E, F, Fut>(self, name: &str, function: F) -> Self
    where
        In: DeserializeOwned + 'static,
        Out: Outcome<In>,
        E: Into<Error>,
        F: Fn(Workflow, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, E>> + Send + 'static,
    {
        self.pinned_workflow(FnDefinition::new(name, function))
    }

    /// Adds a step function that a pool's workers run by this name: what `cx.remote("label", ..)` calls.
    pub fn function<In, Out, E, F, Fut>(mut self, name: &str, function: F) -> Self
    where
        In: DeserializeOwned + 'static,
        Out: Serialize,
        E: Into<Error>,
        F: Fn(Step, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, E>> + Send + 'static,
    {
        match FunctionName::new(name) {
            Err(error) => self.problems.push(error.to_string()),
            Ok(known) if self.functions.contains_key(&known) => {
                self.problems.push(format!("function {name:?} is registered twice"));
            }
            Ok(known) => {
                self.functions.insert(known, Arc::new(FnRemote::new(name, function)));
            }
        }
        self
    }

    /// All problems with what was added, together.
    pub fn validate(&self) -> Result<(), RegistryError> {
        if self.problems.is_empty() { Ok(()) } else { Err(RegistryError { problems: self.problems.clone() }) }
    }

    /// The workflow of that name.
    #[must_use]
    pub fn definition(&self, name: &WorkflowName) -> Option<&Arc<dyn Definition>> {
        self.workflows.get(name)
    }

    /// The remote function of that name.
    #[must_use]
    pub fn remote_function(&self, name: &FunctionName) -> Option<&Arc<dyn RemoteFunction>> {
        self.functions.get(name)
    }

    /// The names of the workflows, sorted.
    pub fn workflow_names(&self) -> impl Iterator<Item = &WorkflowName> {
        self.workflows.keys()
    }

    /// The names of the workflows whose instances are pinned to the build that takes them up first, sorted.
    pub fn pinned_names(&self) -> impl Iterator<Item = &WorkflowName> {
        self.pinned.iter()
    }

    /// The names of the remote functions, sorted.
    pub fn function_names(&self) -> impl Iterator<Item = &FunctionName> {
        self.functions.keys()
    }
}
