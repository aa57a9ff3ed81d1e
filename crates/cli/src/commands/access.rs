//! `everstep access-token`.

use std::{io::Write, path::Path};

use everstep_client::api::WantedAccess;
use everstep_coordinator::http;
use everstep_engine::access::{Asker, Grant};
use everstep_protocol::{AccessName, Scope};
use everstep_store::{
    Store,
    postgres::{PostgresSettings, PostgresStore},
    sqlite::SqliteStore,
};
use serde_json::json;

use super::{Asking, print, settings_for};
use crate::{
    answer::{self, AccessToken, AccessTokenList},
    args::{AccessArgs, AccessCommand, Format, Global},
    failure::Failure,
    settings::Role,
    show, yaml,
};

pub(super) async fn run(global: &Global, command: AccessCommand) -> Result<(), Failure> {
    let scope = |all: bool| if all { Scope::All } else { Scope::Of(global.namespace.clone()) };
    match command {
        AccessCommand::Create(args) if args.direct || args.data.is_some() => direct(global, args).await,
        AccessCommand::Create(args) => {
            let AccessArgs { role, all_namespaces, expires, name, .. } = args;
            let wanted = WantedAccess { name: name.map(|name| name.to_string()), role, expires };
            let asking = Asking::new(global)?;
            let made = asking.client.create_access_token(&scope(all_namespaces), &wanted).await;
            let advice = "there may be a token that nobody has: list them and revoke it";
            let made = made.map_err(|error| Failure::advising(error, advice))?;
            asking.print(&made, |text| Ok(new_access_token(&answer::read(text)?)))
        }
        AccessCommand::List { all_namespaces, after, limit } => {
            let asking = Asking::new(global)?;
            let list = asking.client.access_tokens(&scope(all_namespaces), after, limit).await?;
            asking.print(&list, |text| {
                Ok(show::access_tokens(&answer::read::<AccessTokenList>(text)?.access_tokens))
            })
        }
        AccessCommand::Revoke { id, all_namespaces } => {
            let asking = Asking::new(global)?;
            let revoked = asking.client.revoke_access_token(&scope(all_namespaces), id).await?;
            asking.print(&revoked, |text| {
                let token: AccessToken = answer::read(text)?;
                Ok(show::plain(&format!("revoked access token {} ({})", token.id, token.name)) + "\n")
            })
        }
    }
}

/// In the store itself: for the first token, and for whoever has lost the last.
async fn direct(global: &Global, args: AccessArgs) -> Result<(), Failure> {
    let AccessArgs { role, all_namespaces, expires, name, data, .. } = args;
    let lasts = http::access_token_lasts(expires.as_deref()).map_err(Failure::Usage)?;
    let store = open(global, data.as_deref()).await?;
    let scope = if all_namespaces { Scope::All } else { Scope::Of(global.namespace.clone()) };
    let name = match name {
        Some(name) => name,
        None => AccessName::new(http::ACCESS_TOKEN_UNNAMED).map_err(anyhow::Error::from)?,
    };
    let by = Asker::command_line();
    let grant = Grant { role, scope };
    let made = everstep_coordinator::issue_access_token(&*store, name, grant, lasts, &by).await;
    let (token, row) = made.map_err(anyhow::Error::from)?;
    let made = AccessToken {
        id: row.id.to_string(),
        name: row.name.to_string(),
        role: role.word().to_owned(),
        namespace: row.kept.grant.scope.to_string(),
        expires_at: row.kept.expires_at.map(|at| at.to_string()),
        access_token: Some(token.reveal()),
        ..AccessToken::default()
    };
    let text = json!({
        "id": made.id, "name": made.name, "role": made.role, "namespace": made.namespace,
        "expires_at": made.expires_at, "access_token": made.access_token,
    });
    match global.output {
        Format::Json => print(&format!("{text}\n")),
        Format::Yaml => print(&yaml::of_json(&text.to_string())?),
        Format::Table => print(&new_access_token(&made)),
    }
}

/// The secret, which is all that a pipe gets; what people are told of it goes beside it, and is worth no secret that cannot be told.
fn new_access_token(made: &AccessToken) -> String {
    drop(writeln!(std::io::stderr().lock(), "{}", show::about_new_access_token(made)));
    show::secret(made)
}

async fn open(global: &Global, data: Option<&Path>) -> Result<Box<dyn Store>, Failure> {
    if let Some(data) = data {
        let store = SqliteStore::open(&data.join("dev.db")).map_err(anyhow::Error::from)?;
        return Ok(Box::new(store));
    }
    let settings = settings_for(global, Role::Migrate, Vec::new())?;
    let postgres = PostgresSettings { pool_max: 1, ..settings.postgres.store() };
    let store = PostgresStore::connect(postgres).await.map_err(anyhow::Error::from)?;
    Ok(Box::new(store))
}
