//! `everstep audit`.

use everstep_client::api::AuditSearch;
use everstep_protocol::Scope;

use super::Asking;
use crate::{
    answer::{self, AuditPage},
    args::{AuditArgs, Format},
    failure::Failure,
    show,
};

pub(super) async fn run(asking: &Asking, args: AuditArgs) -> Result<(), Failure> {
    let AuditArgs { all_namespaces, target, who, operation, from, before, after, limit } = args;
    let scope = if all_namespaces { Scope::All } else { Scope::Of(asking.namespace.clone()) };
    let search = AuditSearch { target, who, operation, from, before, after, limit };
    let answer = asking.client.audit(&scope, &search).await?;
    asking.print(&answer, |text| {
        let AuditPage { actions, next } = answer::read(text)?;
        if let Some(next) = next.filter(|_| asking.format == Format::Table) {
            eprintln!("there are more: --after {next}");
        }
        Ok(show::actions(&actions))
    })
}
