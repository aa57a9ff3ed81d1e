//! The commands, one file for each noun.

mod access;
mod attention;
mod audit;
mod batch;
mod bulk;
mod check;
mod doctor;
mod errors;
mod events;
mod export;
mod hooks;
mod instances;
mod ledger;
mod new;
mod rejected;
mod schedules;
mod settings;
mod start;
mod watch;

use std::io::Write;

use clap::CommandFactory;
use everstep_client::api::{Answer, Api};
use everstep_protocol::Namespace;

use crate::{
    args::{Cli, Command, Format, Global, Secret},
    failure::Failure,
    serve,
    settings::{Role, Settings, Sources},
    yaml,
};

/// Runs one command to its end.
pub async fn run(cli: Cli) -> Result<(), Failure> {
    let Cli { global, command } = cli;
    match command {
        Command::Migrate => serve::migrate(&settings_for(&global, Role::Migrate, Vec::new())?).await,
        Command::Restored(args) => {
            serve::restored(&settings_for(&global, Role::Migrate, Vec::new())?, args.settled).await
        }
        Command::Coordinator(args) => {
            let flags = args.listen.map(|listen| ("http.listen", listen)).into_iter().collect();
            serve::coordinator(&settings_for(&global, Role::Coordinator, flags)?).await
        }
        Command::Dev(args) => {
            let flags = args.listen.map(|listen| ("http.listen", listen)).into_iter().collect();
            serve::dev(&settings_for(&global, Role::Dev, flags)?, &args.data).await
        }
        Command::Start(args) => start::start(&Asking::new(&global)?, args).await,
        Command::Instances(command) => instances::run(&Asking::new(&global)?, command).await,
        Command::Bulk(command) => bulk::run(&Asking::new(&global)?, command).await,
        Command::Schedules(command) => schedules::run(&Asking::new(&global)?, command).await,
        Command::Attention(command) => attention::run(&Asking::new(&global)?, command).await,
        Command::Ledger(command) => ledger::run(&Asking::new(&global)?, command).await,
        Command::Events(command) => events::run(&Asking::new(&global)?, command).await,
        Command::Hooks(command) => hooks::run(&Asking::new(&global)?, command).await,
        Command::Check(options) => check::run(options).await,
        Command::Doctor => doctor::run(&Asking::new(&global)?).await,
        Command::Breaches { limit } => doctor::breaches(&Asking::new(&global)?, limit).await,
        Command::Audit(args) => audit::run(&Asking::new(&global)?, args).await,
        Command::Rejected(command) => rejected::run(&Asking::new(&global)?, command).await,
        Command::AccessToken(command) => access::run(&global, command).await,
        Command::Settings(args) => settings::run(&global, &args),
        Command::EffectsMigration { schema } => print(&everstep_postgres::migration(schema.as_ref())),
        Command::New(args) => new::run(&args),
        Command::Errors { code } => errors::run(global.output, code.as_deref()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "everstep", &mut script);
            Ok(std::io::stdout().lock().write_all(&script)?)
        }
    }
}

fn settings_for(
    global: &Global,
    role: Role,
    flags: Vec<(&'static str, String)>,
) -> Result<Settings, Failure> {
    let settings =
        Settings::load(&Sources::of_process(global.config.clone(), flags)).map_err(Failure::Settings)?;
    let problems = settings.validate_for(role);
    if problems.is_empty() { Ok(settings) } else { Err(Failure::Settings(problems)) }
}

/// What commands that ask a server have.
struct Asking {
    client: Api,
    url: String,
    namespace: Namespace,
    format: Format,
}

impl Asking {
    fn new(global: &Global) -> Result<Self, Failure> {
        let (url, namespace) = (global.url.clone(), global.namespace.clone());
        let mut client = Api::new(&url, namespace.clone())?;
        if let Some(token) = access_token(global)? {
            client = client.with_access_token(&token)?;
        }
        Ok(Self { client, url, namespace, format: global.output })
    }

    /// Prints an answer: as it is for programs, through `table` for people.
    fn print(
        &self,
        answer: &Answer,
        table: impl FnOnce(&str) -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => print(&format!("{}\n", answer.text)),
            Format::Yaml => print(&yaml::of_json(&answer.text)?),
            Format::Table => print(&table(&answer.text)?),
        }
    }
}

/// The access token, if one is given. What is wrong with it is said without it.
fn access_token(global: &Global) -> Result<Option<String>, Failure> {
    // An empty variable counts as not set, as everywhere.
    let given =
        global.access_token.as_ref().map(|Secret(token)| token.trim()).filter(|token| !token.is_empty());
    if let Some(token) = given {
        return Ok(Some(token.to_owned()));
    }
    let Some(file) = &global.access_token_file else { return Ok(None) };
    let read = std::fs::read_to_string(file);
    let text = read.map_err(|error| {
        Failure::Usage(format!("--access-token-file {} cannot be read: {error}", file.display()))
    })?;
    match text.trim() {
        "" => Err(Failure::Usage(format!("--access-token-file {} is empty", file.display()))),
        token => Ok(Some(token.to_owned())),
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
