//! `#[workflow]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Error, FnArg, ItemFn, LitStr, Path, Result, ReturnType, Signature};

/// The rule of workflow names (W41), checked again when the workflow is registered.
const NAME_RULE: &str = "a workflow's name is 1 to 50 of the characters a-z, 0-9, _ and -";

pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)
        .map_err(|error| Error::new(error.span(), "#[workflow] goes on an async function"))?;
    let arguments = Arguments::parse(arguments)?;
    let has_input = check(&function.sig)?;
    let name = arguments.name_for(&function)?;
    Ok(write(function, &arguments.sdk, &name, has_input))
}

struct Arguments {
    name: Option<LitStr>,
    sdk: Path,
}

impl Arguments {
    fn parse(arguments: TokenStream) -> Result<Self> {
        let mut parsed = Self { name: None, sdk: syn::parse_quote!(::everstep) };
        let parser = syn::meta::parser(|meta| {
            if meta.path.is_ident("name") {
                parsed.name = Some(meta.value()?.parse()?);
                Ok(())
            } else if meta.path.is_ident("crate") {
                parsed.sdk = meta.value()?.parse::<LitStr>()?.parse()?;
                Ok(())
            } else {
                Err(meta.error("only `name = \"..\"` and `crate = \"..\"` are known here"))
            }
        });
        syn::parse::Parser::parse2(parser, arguments)?;
        Ok(parsed)
    }

    fn name_for(&self, function: &ItemFn) -> Result<LitStr> {
        let ident = &function.sig.ident;
        let name = match &self.name {
            Some(name) => name.clone(),
            None => LitStr::new(ident.to_string().trim_start_matches("r#"), ident.span()),
        };
        let value = name.value();
        let valid = (1..=50).contains(&value.len())
            && value.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
        if valid { Ok(name) } else { Err(Error::new(name.span(), NAME_RULE)) }
    }
}

/// Whether the function takes an input, or what keeps it from being a workflow.
fn check(signature: &Signature) -> Result<bool> {
    if signature.asyncness.is_none() {
        return Err(Error::new(
            signature.fn_token.span(),
            "a workflow is an async function: write `async fn`",
        ));
    }
    if let Some(FnArg::Receiver(receiver)) = signature.inputs.first() {
        return Err(Error::new(receiver.span(), "a workflow is a free function and takes no `self`"));
    }
    if !signature.generics.params.is_empty() || signature.generics.where_clause.is_some() {
        return Err(Error::new(
            signature.generics.span(),
            "a workflow cannot be generic: it is registered under one name",
        ));
    }
    if let ReturnType::Default = signature.output {
        return Err(Error::new(signature.ident.span(), "a workflow returns a `Result`"));
    }
    match signature.inputs.len() {
        1 => Ok(false),
        2 => Ok(true),
        _ => Err(Error::new(
            signature.ident.span(),
            "a workflow takes its context and at most one input: `(cx: Workflow, input: T)`; give several values as a \
             tuple or a struct",
        )),
    }
}

fn write(mut function: ItemFn, sdk: &Path, name: &LitStr, has_input: bool) -> TokenStream {
    let ident = function.sig.ident.clone();
    let visibility = std::mem::replace(&mut function.vis, syn::Visibility::Inherited);
    let attributes = std::mem::take(&mut function.attrs);
    let (cfgs, attributes): (Vec<_>, Vec<_>) = attributes.into_iter().partition(is("cfg"));
    let (docs, others): (Vec<_>, Vec<_>) = attributes.into_iter().partition(is("doc"));
    function.attrs = others;
    // A name of its own: the struct's is also a value, and the body may use it.
    let inner = format_ident!("__{}_body", ident.to_string().trim_start_matches("r#"));
    function.sig.ident = inner.clone();
    let call = if has_input {
        quote_spanned!(ident.span()=> |cx, input| #inner(cx, input))
    } else {
        quote_spanned!(ident.span()=> |cx, (): ()| #inner(cx))
    };
    quote! {
        #(#cfgs)*
        #(#docs)*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #ident;

        #(#cfgs)*
        const _: () = {
            #function

            impl #sdk::host::Definition for #ident {
                fn name(&self) -> &str {
                    #name
                }

                fn begin(&self, cx: #sdk::Workflow, input: &#sdk::host::Payload) -> #sdk::host::Body {
                    #sdk::host::begin(#name, cx, input, #call)
                }
            }
        };
    }
}

fn is(name: &'static str) -> impl Fn(&Attribute) -> bool {
    move |attribute| attribute.path().is_ident(name)
}

#[cfg(test)]
mod tests {
    //! Proves what is refused and how it is said. That the expansion compiles and runs is proved in the SDK's tests.
    use super::*;

    fn check(arguments: &str, item: &str, expect: &str) {
        let error = expand(arguments.parse().unwrap(), item.parse().unwrap())
            .err()
            .unwrap_or_else(|| panic!("{item} was accepted"))
            .to_string();
        assert!(error.contains(expect), "{item}: {error}");
    }

    #[test]
    fn what_is_no_workflow_is_refused_with_the_reason() {
        check("", "fn a(cx: Workflow) -> R { x }", "write `async fn`");
        check("", "struct A;", "goes on an async function");
        check("", "async fn a() -> R { x }", "its context and at most one input");
        check("", "async fn a(cx: Workflow, b: u8, c: u8) -> R { x }", "tuple or a struct");
        check("", "async fn a(&self, b: u8) -> R { x }", "no `self`");
        check("", "async fn a<T>(cx: Workflow, b: T) -> R { x }", "cannot be generic");
        check("", "async fn a(cx: Workflow) {}", "returns a `Result`");
        check("", "async fn shipIt(cx: Workflow) -> R { x }", NAME_RULE);
        check("name = \"Ship it\"", "async fn a(cx: Workflow) -> R { x }", NAME_RULE);
        check("names = \"a\"", "async fn a(cx: Workflow) -> R { x }", "are known here");
        check("name = a", "async fn a(cx: Workflow) -> R { x }", "expected string literal");
    }

    #[test]
    fn docs_visibility_and_conditions_go_to_the_value_and_the_rest_to_the_function() {
        let item =
            "#[doc = \"D\"] #[cfg(x)] #[tracing::instrument] pub(crate) async fn r#do(cx: W) -> R { x }";
        let text = expand("crate = \"a::b\"".parse().unwrap(), item.parse().unwrap()).unwrap().to_string();
        let (value, body) = text.split_once("const _").unwrap();
        assert!(value.starts_with("# [cfg (x)] # [doc = \"D\"]"), "{value}");
        assert!(value.contains("pub (crate) struct r#do ;"), "{value}");
        assert!(value.trim_end().ends_with("# [cfg (x)]"), "{value}");
        assert!(body.contains("# [tracing :: instrument] async fn __do_body"), "{body}");
        assert!(body.contains("impl a :: b :: host :: Definition for r#do"), "{body}");
        assert!(body.contains("\"do\""), "{body}");
    }
}
