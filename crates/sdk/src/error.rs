//! The error of workflow and step code.

use std::fmt;

use everstep_protocol::duration::IntoMillis;
use everstep_protocol::{Failure, FailureKind, Payload, Sent};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How workflow and step code fails, and what a failed call returns.
///
/// Any [`std::error::Error`] becomes one by `?`. Name and message are recorded and come back unchanged in every
/// replay (rules P6, P13).
///
/// ```
/// use everstep_sdk::Error;
///
/// fn quantity(text: &str) -> Result<u32, Error> {
///     let quantity = text.parse()?;
///     if quantity > 1_000 {
///         return Err(Error::permanent("nobody needs so many").named("TooMany"));
///     }
///     Ok(quantity)
/// }
/// assert_eq!(quantity("many").unwrap_err().name(), "ParseIntError");
/// assert!(quantity("5000").unwrap_err().is_permanent());
/// ```
///
/// Like `anyhow::Error` it does not implement [`std::error::Error`] itself: that is what makes `?` work on all others.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Failure>);

impl Error {
    /// A failure that may be retried, with this message. The name is `Error` unless [`named`](Self::named).
    ///
    /// It takes all that can be shown, so `map_err(Error::failed)` works for any foreign error.
    #[must_use]
    pub fn failed(message: impl fmt::Display) -> Self {
        Self(Box::new(Failure::new(FailureKind::Error, message.to_string())))
    }

    /// A failure after which no further attempt is made (rule P13).
    ///
    /// ```
    /// # use everstep_sdk::Error;
    /// assert!(Error::permanent("card declined").is_permanent());
    /// ```
    #[must_use]
    pub fn permanent(message: impl fmt::Display) -> Self {
        let mut error = Self::failed(message);
        error.0.permanent = true;
        error
    }

    /// A failure that came before anything was sent: there is no effect. The step may be tried again as its policy says, also one that
    /// is called [at most once](crate::StepCall::at_most_once) (rule L9).
    ///
    /// ```
    /// # use everstep_sdk::Error;
    /// let error = Error::not_sent("the account is locked, nothing was transferred");
    /// assert!(error.is_without_effect() && !error.is_permanent());
    /// ```
    #[must_use]
    pub fn not_sent(message: impl fmt::Display) -> Self {
        Self::from_failure(Self::failed(message).0.not_sent())
    }

    /// A refusal for sure: whoever was asked has not done it, and will not. No further attempt is made.
    ///
    /// ```
    /// # use everstep_sdk::Error;
    /// let error = Error::refused("the account has too little money");
    /// assert!(error.is_without_effect() && error.is_permanent());
    /// ```
    #[must_use]
    pub fn refused(message: impl fmt::Display) -> Self {
        let mut error = Self::permanent(message);
        error.0.sent = Sent::Refused;
        error
    }

    /// What connecting to a service has failed with. Where nobody listens, or no host has the name or address, nothing was
    /// [sent](Self::not_sent); of any other error that is not known. Only for connecting: what fails later may have been done.
    ///
    /// ```
    /// # use everstep_sdk::Error;
    /// use std::io::{Error as IoError, ErrorKind};
    ///
    /// let refused = Error::connecting(IoError::from(ErrorKind::ConnectionRefused));
    /// assert!(refused.is_without_effect());
    /// assert!(!Error::connecting(IoError::from(ErrorKind::TimedOut)).is_without_effect());
    /// ```
    #[must_use]
    pub fn connecting(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let not_sent = matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::NetworkDown
                | ErrorKind::AddrNotAvailable
                | ErrorKind::NotFound
        );
        let error = Self::from(error);
        if not_sent { Self::from_failure(error.0.not_sent()) } else { error }
    }

    /// Gives the error a name of its own, by which others tell it from the rest.
    ///
    /// ```
    /// # use everstep_sdk::Error;
    /// let error = Error::permanent("limit exceeded").named("CardDeclined");
    /// assert_eq!(error.to_string(), "CardDeclined: limit exceeded");
    /// ```
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.0.name = name.into();
        self
    }

    /// The same error of another kind.
    pub(crate) fn of_kind(mut self, kind: FailureKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Asks for the next attempt after this time, taken as it is: no multiplier, no jitter (rule P12). A text that is
    /// no duration makes this a permanent error that names the text, rather than a delay that nobody asked for.
    ///
    /// ```
    /// # use everstep_sdk::Error;
    /// let error = Error::failed("slow down").retry_after("10s");
    /// assert!(!error.is_permanent());
    /// ```
    #[must_use]
    pub fn retry_after(self, delay: impl IntoMillis) -> Self {
        match delay.into_millis() {
            Ok(delay) => {
                let mut error = self;
                error.0.retry_after = Some(delay);
                error
            }
            Err(reason) => self.spoiled(FailureKind::Invalid, "retry_after", reason),
        }
    }

    /// Attaches data for those who handle the error. Data without a JSON form makes this a permanent error that says
    /// so (rule P3).
    ///
    /// ```
    /// # use everstep_sdk::Error;
    /// let error = Error::failed("out of stock").with_data(["screws", "nails"]);
    /// assert_eq!(error.data::<Vec<String>>().unwrap(), ["screws", "nails"]);
    /// ```
    #[must_use]
    pub fn with_data(mut self, data: impl Serialize) -> Self {
        match Payload::encode(&data) {
            Ok(data) => {
                self.0.data = Some(data);
                self
            }
            Err(reason) => self.spoiled(FailureKind::Unserialisable, "with_data", reason),
        }
    }

    fn spoiled(self, kind: FailureKind, what: &str, reason: impl fmt::Display) -> Self {
        let failure = Failure::new(kind, format!("{what}: {reason}; the error was {self}"));
        Self(Box::new(failure.of_sensitive(self.0.sensitive)))
    }

    /// The recorded form as an error.
    #[must_use]
    pub fn from_failure(failure: Failure) -> Self {
        Self(Box::new(failure))
    }

    /// What kind of failure it was.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.0.kind
    }

    /// Its name: the one given, the last part of the type's name, or the kind's.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its message; may be empty. That of a step that is marked sensitive is given here and nowhere else (rule P44).
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The attempt took longer than its timeout, and no retry was left (rule P14); or no event came in time (rule P21), under
    /// the name `EventTimedOut`.
    #[must_use]
    pub fn is_timed_out(&self) -> bool {
        self.kind() == FailureKind::TimedOut
    }

    /// The worker died while the attempt ran, and no retry was left (rule P15).
    #[must_use]
    pub fn is_worker_lost(&self) -> bool {
        self.kind() == FailureKind::WorkerLost
    }

    /// The instance was cancelled while the call was open (rule P30). Returned from the workflow, possibly after some clean-up,
    /// it ends the instance as cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.kind() == FailureKind::Cancelled
    }

    /// No further attempt may be made.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.0.permanent
    }

    /// Nothing took effect: it [was not sent](Self::not_sent), or was [refused](Self::refused) for sure.
    #[must_use]
    pub fn is_without_effect(&self) -> bool {
        self.0.sent.is_without_effect()
    }

    /// It came of a step that is marked sensitive (rule P44): it is displayed without its message, by you too.
    #[must_use]
    pub fn is_sensitive(&self) -> bool {
        self.0.sensitive
    }

    /// The attached data; none if there is none or if it does not fit the type.
    #[must_use]
    pub fn data<T: DeserializeOwned>(&self) -> Option<T> {
        self.0.data.as_ref().and_then(|data| data.decode().ok())
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self::failed(with_sources(&error)).named(last_segment(std::any::type_name::<E>()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        *error.0
    }
}

impl AsRef<Failure> for Error {
    fn as_ref(&self) -> &Failure {
        &self.0
    }
}

/// `Name: message`; the message of a step that is marked sensitive is left out.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.message.is_empty() { f.write_str(&self.0.name) } else { self.0.fmt(f) }
    }
}

/// What a person needs when a test or `main` prints it: the message, then what is not the default.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        if self.0.permanent {
            f.write_str(" (permanent)")?;
        }
        if let Some(delay) = self.0.retry_after {
            write!(f, " (retry after {delay})")?;
        }
        Ok(())
    }
}

/// The message with those of its sources; a source that the message already ends with is not repeated.
#[must_use]
pub fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// `CardError` of `shop::card::CardError<shop::Card>`.
fn last_segment(type_name: &str) -> &str {
    let path = type_name.split_once('<').map_or(type_name, |(path, _)| path);
    path.rsplit("::").next().unwrap_or(path)
}
