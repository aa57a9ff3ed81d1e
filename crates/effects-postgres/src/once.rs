//! A write that happens once under the key of its step.

use everstep_protocol::{Payload, key::Fingerprint};
use everstep_sdk::{Error, Step, host::with_sources};
use serde::{Serialize, de::DeserializeOwned};
use tokio_postgres::{
    Client, IsolationLevel, Transaction,
    error::{Severity, SqlState},
};

use crate::{Schema, name, schema::of};

const CLAIM: &str = include_str!("sql/claim.sql");
const RECORD: &str = include_str!("sql/record.sql");
const FIND: &str = "SELECT input, output FROM /*schema.*/everstep_effect WHERE key = $1 AND part = $2";

/// How often a key that another transaction has just written, or the purge just removed, is asked for again.
const TRIES: u32 = 10;
/// The limit of a step's output unless the installation sets another (rule P4): checked before the commit, since a step whose
/// output is refused after it has failed, and has written all the same.
const OUTPUT_BYTES: usize = 1 << 20;

/// Writes once under the key of this step, or gives the output of the attempt that has written. The same as [`Once::new`] with
/// nothing else said, and [`Once::run`].
pub async fn once<T, E, F>(step: &Step, client: &mut Client, write: F) -> Result<T, Error>
where
    T: Serialize + DeserializeOwned,
    E: Into<Error>,
    F: AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
{
    Once::new(step).run(client, write).await
}

/// An effect of a step, and how it is written.
///
/// ```no_run
/// # use everstep_sdk::{Error, Step};
/// use everstep_postgres::{Once, Schema};
/// use tokio_postgres::IsolationLevel;
///
/// # async fn step(step: Step, (order, cents): (i64, i64), mut client: tokio_postgres::Client) -> Result<(), Error> {
/// Once::new(&step)
///     .schema(&Schema::new("billing")?)
///     .input(&(order, cents))
///     .isolation(IsolationLevel::Serializable)
///     .run(&mut client, async |tx| {
///         tx.execute("INSERT INTO invoice (order_id, cents) VALUES ($1, $2)", &[&order, &cents]).await?;
///         Ok::<(), Error>(())
///     })
///     .await
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is written until it is run"]
pub struct Once<'a> {
    step: &'a Step,
    part: &'a str,
    input: Option<Result<Fingerprint, String>>,
    schema: Option<Schema>,
    isolation: Option<IsolationLevel>,
    output_bytes: usize,
}

/// What became of a claim.
enum Claim {
    /// In the transaction of this number.
    Ours(String),
    Found {
        input: Option<Vec<u8>>,
        output: Option<String>,
    },
}

impl<'a> Once<'a> {
    /// The effect of this step.
    pub const fn new(step: &'a Step) -> Self {
        Self { step, part: "", input: None, schema: None, isolation: None, output_bytes: OUTPUT_BYTES }
    }

    /// One of several effects of a step, by a name of its own. Two effects without one would be the same effect: the second
    /// would find the first, and not be written.
    pub const fn part(mut self, part: &'a str) -> Self {
        self.part = part;
        self
    }

    /// What the effect is made of, as the step was given it: an attempt that comes under the same key with another input is refused
    /// instead of being told that it has written.
    pub fn input(mut self, input: &(impl Serialize + ?Sized)) -> Self {
        let payload = Payload::encode(input);
        self.input =
            Some(payload.and_then(|input| Fingerprint::of(&input)).map_err(|error| error.to_string()));
        self
    }

    /// The schema of the table. Default: the connection's search path decides.
    pub fn schema(mut self, schema: &Schema) -> Self {
        self.schema = Some(schema.clone());
        self
    }

    /// The isolation of the transaction. Default: the connection's. Under `RepeatableRead` and `Serializable` the database may refuse
    /// the write or the commit with a serialisation error; nothing is written then, and the step may be retried.
    pub const fn isolation(mut self, isolation: IsolationLevel) -> Self {
        self.isolation = Some(isolation);
        self
    }

    /// The most bytes of the output's JSON, where the installation has another limit than 1 MiB.
    pub const fn output_bytes(mut self, bytes: usize) -> Self {
        self.output_bytes = bytes;
        self
    }

    /// Writes, or gives the output of the attempt that has written. The transaction is this one's: `write` neither commits it nor
    /// rolls it back. Dropped, it is rolled back, unless the commit was under way already.
    ///
    /// Errors: those of `write`, as they are; and those of [`name`].
    pub async fn run<T, E, F>(self, client: &mut Client, write: F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        E: Into<Error>,
        F: AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
    {
        let mut tries = 0;
        loop {
            let mut begin = client.build_transaction();
            if let Some(isolation) = self.isolation {
                begin = begin.isolation_level(isolation);
            }
            let transaction = begin.start().await.map_err(|error| database(&error))?;
            match self.claim(&transaction).await {
                Ok(Some(Claim::Ours(number))) => {
                    let output = self.written(&transaction, write, &number).await?;
                    let Err(error) = transaction.commit().await else { return Ok(output) };
                    if is_refused(&error) {
                        let told = told(&error);
                        return Err(nothing_written(&format!("the commit was refused: {told}")));
                    }
                    return self.looked(client).await.unwrap_or_else(|| Err(unknown(&error)));
                }
                Ok(Some(Claim::Found { input, output })) => {
                    // Nothing was written in it. The output is known, whatever becomes of the connection.
                    drop(transaction);
                    return self.found(input.as_deref(), output);
                }
                Ok(None) => {}
                Err(error) if is_race(&error) && tries < TRIES => {}
                Err(error) => return Err(database(&error)),
            }
            tries += 1;
            if tries > TRIES {
                return Err(nothing_written("the key is written and removed again and again"));
            }
        }
    }

    /// The same in a transaction of yours: the key and the write are there when you have committed it, and not before. If the
    /// answer to your commit is lost, treat it as unknown, and let the step be retried. A `write` that ends your transaction is found out,
    /// as in [`run`](Self::run).
    pub async fn within<T, E, F>(self, transaction: &Transaction<'_>, write: F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        E: Into<Error>,
        F: AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
    {
        for _ in 0..TRIES {
            match self.claim(transaction).await.map_err(|error| database(&error))? {
                Some(Claim::Ours(number)) => return self.written(transaction, write, &number).await,
                Some(Claim::Found { input, output }) => return self.found(input.as_deref(), output),
                None => {}
            }
        }
        Err(nothing_written("the key is written and removed again and again"))
    }

    /// None if the key was there a moment ago and is not any more.
    async fn claim(&self, transaction: &Transaction<'_>) -> Result<Option<Claim>, tokio_postgres::Error> {
        let Self { step, part, .. } = self;
        let (key, attempt) = (step.idempotency_key(), i32::try_from(step.attempt()).unwrap_or(i32::MAX));
        let input = self.input.as_ref().and_then(|input| Some(input.as_ref().ok()?.as_bytes().as_slice()));
        let (workflow, instance, name) = (step.workflow(), step.instance_id(), step.name());
        let claim = of(CLAIM, self.schema.as_ref());
        let claimed = transaction
            .query_opt(&claim, &[&key, part, &input, &workflow, &instance, &name, &attempt])
            .await?;
        if let Some(row) = claimed {
            return Ok(Some(Claim::Ours(row.try_get(0)?)));
        }
        let found = transaction.query_opt(&of(FIND, self.schema.as_ref()), &[&key, part]).await?;
        let Some(row) = found else { return Ok(None) };
        Ok(Some(Claim::Found { input: row.try_get(0)?, output: row.try_get(1)? }))
    }

    /// After a commit of which nobody knows whether it was done: what is recorded, if the connection still answers. That nothing is
    /// there says nothing, since the commit may be under way.
    async fn looked<T: DeserializeOwned>(&self, client: &Client) -> Option<Result<T, Error>> {
        if client.is_closed() {
            return None;
        }
        let key = self.step.idempotency_key();
        let found = client.query_opt(&of(FIND, self.schema.as_ref()), &[&key, &self.part]).await;
        let row = found.ok().flatten()?;
        let input: Option<Vec<u8>> = row.try_get(0).ok()?;
        Some(self.found(input.as_deref(), row.try_get(1).ok()?))
    }

    /// Writes, and records the output. `number` is that of the transaction in which the key was claimed.
    async fn written<T, E, F>(
        &self,
        transaction: &Transaction<'_>,
        write: F,
        number: &str,
    ) -> Result<T, Error>
    where
        T: Serialize,
        E: Into<Error>,
        F: AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
    {
        if let Some(Err(reason)) = &self.input {
            return Err(Error::permanent(format!("the input of the effect: {reason}")).named(name::CONFLICT));
        }
        let output = write(transaction).await.map_err(Into::into)?;
        let recorded = self.encoded(&output)?;
        let (key, part) = (self.step.idempotency_key(), self.part);
        let record = of(RECORD, self.schema.as_ref());
        match transaction.execute(&record, &[&key, &part, &recorded.as_str(), &number]).await {
            Ok(1) => Ok(output),
            Ok(_) => {
                let message = "the write has ended the transaction that it was given; what it wrote may be there without a \
                               record of it, so look before you try again";
                Err(Error::permanent(message).named(name::ENDED))
            }
            Err(error) if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) => {
                Err(nothing_written("a statement of the write failed, and the write went on"))
            }
            Err(error) => Err(database(&error)),
        }
    }

    fn encoded(&self, output: &impl Serialize) -> Result<Payload, Error> {
        let refused =
            |reason: String| Error::permanent(format!("{reason}; nothing was written")).named(name::OUTPUT);
        let recorded = Payload::encode(output).map_err(|error| refused(format!("the output: {error}")))?;
        if recorded.len() > self.output_bytes {
            let (bytes, limit) = (recorded.len(), self.output_bytes);
            return Err(refused(format!("the output is {bytes} bytes of JSON, the limit is {limit}")));
        }
        Ok(recorded)
    }

    fn found<T: DeserializeOwned>(&self, input: Option<&[u8]>, output: Option<String>) -> Result<T, Error> {
        let own = self.input.as_ref().map(|input| input.as_ref().map(Fingerprint::as_bytes));
        let same = match (own, input) {
            (Some(Ok(own)), Some(recorded)) => own.as_slice() == recorded,
            (Some(Err(_)), _) => false,
            // Whoever said nothing of the input cannot be compared.
            (None, _) | (_, None) => true,
        };
        if !same {
            let message =
                "under the key of this step there is an effect of another input; nothing was written";
            return Err(Error::permanent(message).named(name::CONFLICT));
        }
        let misfit = |reason: String| {
            let message =
                format!("the effect is there already, and its recorded output does not fit: {reason}");
            Error::permanent(message).named(name::MISFIT)
        };
        let output = output.ok_or_else(|| misfit("there is none".to_owned()))?;
        Payload::from_trusted(output).decode().map_err(|error| misfit(error.to_string()))
    }
}

/// Another transaction has written the key after this one's snapshot was taken.
fn is_race(error: &tokio_postgres::Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::T_R_SERIALIZATION_FAILURE) || code == Some(&SqlState::T_R_DEADLOCK_DETECTED)
}

fn nothing_written(reason: &str) -> Error {
    Error::failed(format!("{reason}; nothing was written, trying again is safe")).named(name::DATABASE)
}

/// A statement of ours failed before the commit, which ends the transaction. Nothing was written here, but that is not marked as not sent
/// (rule L9): what else the step has done, before this or in the write, is for its author to say.
fn database(error: &tokio_postgres::Error) -> Error {
    let reason = told(error);
    if error.code() == Some(&SqlState::UNDEFINED_TABLE) {
        return nothing_written(&format!(
            "the table of effects is missing, run what `everstep effects-migration` prints ({reason})"
        ));
    }
    nothing_written(&reason)
}

/// Whether a commit that was not confirmed is known not to have been done: the database itself has refused it. Otherwise the answer is
/// lost.
fn is_refused(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|error| refuses(error.parsed_severity(), error.code().code()))
}

/// Whether this answer to a commit is a refusal. A server that shuts down (57P0x), and what stands between here and there and has lost it
/// (class 08, 40003), say so too late to count as one, whatever they call its severity.
fn refuses(severity: Option<Severity>, code: &str) -> bool {
    let is_lost = code.starts_with("08") || code.starts_with("57P0") || code == "40003";
    severity == Some(Severity::Error) && !is_lost
}

fn unknown(error: &tokio_postgres::Error) -> Error {
    let message = format!(
        "the answer to the commit was lost ({}), so whether it was written is not known; the next attempt finds out",
        told(error)
    );
    Error::failed(message).named(name::UNKNOWN)
}

/// What the database or the driver says, with its cause.
pub(crate) fn told(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} ({})", error.message(), error.code().code()),
        None => with_sources(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l12_what_an_answer_to_a_commit_says_of_it() {
        for code in ["23503", "23505", "40001", "40P01", "25P02", "P0001", "53100", "57014", "40002"] {
            assert!(refuses(Some(Severity::Error), code), "{code}");
            for severity in [None, Some(Severity::Fatal), Some(Severity::Panic)] {
                assert!(!refuses(severity, code), "{code} {severity:?}");
            }
        }
        let lost = [
            "08000", "08001", "08003", "08004", "08006", "08007", "08P01", "57P01", "57P02", "57P03", "57P05",
        ];
        for code in lost.into_iter().chain(["40003"]) {
            assert!(!refuses(Some(Severity::Error), code), "{code}");
        }
    }
}
