//! How a store fails. A variant only where a caller acts differently.

/// A store's error.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {reason}; {}", .kind.advice())]
pub struct Error {
    /// What a caller should do.
    pub kind: ErrorKind,
    /// What was tried.
    pub doing: &'static str,
    /// What went wrong.
    pub reason: String,
}

/// What a caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The store is away, busy, or the commit's outcome is not known.
    Unavailable,
    /// Another transaction took a name or message meanwhile; nothing was written.
    Conflict,
    /// The store will not take these rows; nothing was written.
    Refused,
    /// The store holds something that this version cannot read.
    Corrupt,
    /// The store is not set up for this version: run the migrations.
    NotMigrated,
    /// Another process has the embedded store open (rule W13).
    InUse,
}

impl ErrorKind {
    const fn advice(self) -> &'static str {
        match self {
            Self::Unavailable => "repeating is safe",
            Self::Conflict => "run it again",
            Self::Refused => "repeating the same rows cannot help",
            Self::Corrupt => "this needs a person",
            Self::NotMigrated => "run `everstep migrate` first",
            Self::InUse => "stop the other process first",
        }
    }
}

impl Error {
    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same for people outside: what was tried and whether to try again, without the words of the database, which name
    /// what is in it.
    #[must_use]
    pub fn for_outsiders(&self) -> String {
        format!("{} failed; {}", self.doing, self.kind.advice())
    }

    /// An error of this kind.
    pub fn new(kind: ErrorKind, doing: &'static str, reason: impl std::fmt::Display) -> Self {
        Self { kind, doing, reason: reason.to_string() }
    }
}
