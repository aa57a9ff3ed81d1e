//! The attribute macros of the SDK. Thin: what a macro writes calls functions of `everstep::host`, so that the
//! expansion stays short enough to read in an error message.

use proc_macro::TokenStream;

mod workflow;

/// Makes a workflow of an async function: `async fn name(cx: Workflow, input: T) -> Result<Out, E>`, or without the
/// input. Afterwards the name is a value to register; visibility and docs stay.
///
/// ```text
/// #[everstep::workflow]
/// async fn fulfil(cx: Workflow, order: Order) -> Result<Receipt, Error> { .. }
///
/// #[everstep::workflow(name = "fulfil-order-2")]
/// async fn fulfil_again(cx: Workflow, order: Order) -> Result<Receipt, Error> { .. }
///
/// Registry::new().workflow(fulfil).workflow(fulfil_again);
/// ```
///
/// Without `name` the workflow is called like the function. With `crate = "path"` the expansion looks for the SDK
/// there instead of at `::everstep`.
#[proc_macro_attribute]
pub fn workflow(arguments: TokenStream, item: TokenStream) -> TokenStream {
    workflow::expand(arguments.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
