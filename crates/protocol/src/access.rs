//! Access tokens: what opens the HTTP API. (A *token* alone is a hook's.) Their text, which only its owner has; what is kept of it; and
//! the roles that it can stand for.
//!
//! A text is `evs_<id>_<secret>`: 32 hexadecimal digits by which the token is found, and 64 that nobody can guess. The prefix is what
//! scanners of leaked secrets look for. The secret has 256 bits of a system's randomness, so one round of SHA-256 keeps it: there is
//! nothing to try out that salt or a slow hash would make dearer.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use thiserror::Error;
use uuid::Uuid;

use crate::{Namespace, name::NameError};

const PREFIX: &str = "evs_";
const SECRET_BYTES: usize = 32;
const RULE: &str = "evs_, 32 hexadecimal digits in lower case, _, and 64 more";

/// What whoever has a token may do. Each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look at everything.
    Viewer,
    /// Start instances, send events, resume hooks.
    Producer,
    /// Operate instances and schedules, answer questions.
    Operator,
    /// Make and revoke access tokens.
    Admin,
}

impl Role {
    /// All, the weakest first.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Producer, Self::Operator, Self::Admin];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Producer => "producer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A text that should say something of an access token, and does not. Trying again gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AccessError {
    /// There is no such role.
    #[error("role {0:?} is refused, it must be viewer, producer, operator or admin")]
    Role(String),
    /// No namespace, and not all of them.
    #[error("{0}, or * for all")]
    Scope(NameError),
    /// No id of an access token.
    #[error("access token id {0:?} is refused, it must be 32 hexadecimal digits in lower case")]
    Id(String),
    /// No access token. What was given is not told again: it may be one with a slip in it.
    #[error("the access token is refused, it must be {RULE}")]
    Text,
}

impl FromStr for Role {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let role = Self::ALL.into_iter().find(|role| role.word() == text);
        role.ok_or_else(|| AccessError::Role(text.chars().take(60).collect()))
    }
}

/// Where a role counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// In every namespace, and for what belongs to none.
    All,
    /// In this one.
    Of(Namespace),
}

impl Scope {
    /// Whether whatever belongs to `other` belongs to this.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        matches!(self, Self::All) || self == other
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.pad("*"),
            Self::Of(namespace) => namespace.fmt(f),
        }
    }
}

impl FromStr for Scope {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        match text {
            "*" => Ok(Self::All),
            name => Namespace::new(name).map(Self::Of).map_err(AccessError::Scope),
        }
    }
}

/// By what an access token is known: no secret. Later ones sort after earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccessTokenId(pub Uuid);

impl fmt::Display for AccessTokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

impl fmt::Debug for AccessTokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccessTokenId({self})")
    }
}

impl FromStr for AccessTokenId {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let refused = || AccessError::Id(text.chars().take(60).collect());
        let mut bytes = [0; 16];
        digits(text, &mut bytes).ok_or_else(refused)?;
        Ok(Self(Uuid::from_bytes(bytes)))
    }
}

/// What is kept of an access token's secret. Compared in constant time.
#[derive(Clone, Copy, Eq)]
pub struct AccessHash(pub [u8; 32]);

impl PartialEq for AccessHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for AccessHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessHash(..)")
    }
}

/// An access token as its owner has it. Only [`reveal`](AccessToken::reveal) gives it away.
#[derive(Clone)]
pub struct AccessToken {
    id: AccessTokenId,
    secret: [u8; SECRET_BYTES],
}

impl AccessToken {
    /// A new one, of an id that was never given and bytes that nobody can guess.
    #[must_use]
    pub const fn new(id: AccessTokenId, secret: [u8; SECRET_BYTES]) -> Self {
        Self { id, secret }
    }

    /// By what it is known.
    #[must_use]
    pub const fn id(&self) -> AccessTokenId {
        self.id
    }

    /// What is kept of it.
    #[must_use]
    pub fn hash(&self) -> AccessHash {
        AccessHash(Sha256::digest(self.secret).into())
    }

    /// The text: for its owner, once.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, hex::encode(self.secret))
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_***", self.id)
    }
}

impl FromStr for AccessToken {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let parts = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
        let (id, digits_of_secret) = parts.ok_or(AccessError::Text)?;
        let id = id.parse().map_err(|_| AccessError::Text)?;
        let mut secret = [0; SECRET_BYTES];
        digits(digits_of_secret, &mut secret).ok_or(AccessError::Text)?;
        Ok(Self { id, secret })
    }
}

/// Exactly so many digits in lower case: a token has one text.
fn digits(text: &str, bytes: &mut [u8]) -> Option<()> {
    let is_lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_lower { hex::decode_to_slice(text, bytes).ok() } else { None }
}

#[cfg(test)]
mod tests {
    //! Proves that a token has one text, that it is shown by nothing else, and the order of the roles.
    use super::*;

    fn token() -> AccessToken {
        AccessToken::new(AccessTokenId(Uuid::from_u128(0xab)), [7; 32])
    }

    #[test]
    fn a01_a_token_is_read_as_it_was_written() {
        let text = token().reveal();
        assert_eq!(text, format!("evs_{}ab_{}", "0".repeat(30), "07".repeat(32)));
        let read: AccessToken = text.parse().unwrap();
        assert_eq!((read.id(), read.hash()), (token().id(), token().hash()));
        assert_ne!(AccessToken::new(token().id(), [8; 32]).hash(), token().hash());
    }

    #[test]
    fn a01_what_is_no_token_is_refused_without_being_told_again() {
        let text = token().reveal();
        let id = format!("{}ab", "0".repeat(30));
        let others = [
            String::new(),
            text.to_uppercase(),
            format!("{text} "),
            format!(" {text}"),
            format!("{text}0"),
            text[..text.len() - 1].to_owned(),
            text.replace("ab_", "AB_"),
            format!("evs_{id}"),
            format!("evs_{id}_"),
            format!("ghp_{id}_{}", "07".repeat(32)),
            "evs_".repeat(1 << 18),
        ];
        for other in others {
            let error = other.parse::<AccessToken>().unwrap_err();
            assert_eq!(error, AccessError::Text, "{other}");
            assert!(!error.to_string().contains("07"), "{error}");
        }
    }

    #[test]
    fn a01_a_token_shows_its_id_alone() {
        let shown = format!("{:?} {:?}", token(), token().hash());
        assert_eq!(shown, format!("evs_{}ab_*** AccessHash(..)", "0".repeat(30)));
    }

    #[test]
    fn a02_each_role_may_what_those_before_it_may() {
        assert!(Role::ALL.is_sorted());
        for role in Role::ALL {
            assert_eq!(role.word().parse(), Ok(role));
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("{:?}", role.word()));
        }
        assert!(
            "root".parse::<Role>().unwrap_err().to_string().contains("viewer, producer, operator or admin")
        );
    }

    #[test]
    fn all_namespaces_cover_each_and_none_covers_all() {
        let of = |name: &str| name.parse::<Scope>().unwrap();
        assert!(of("*").covers(&of("*")) && of("*").covers(&of("a")) && of("a").covers(&of("a")));
        assert!(!of("a").covers(&of("b")) && !of("a").covers(&of("*")));
        assert!("A".parse::<Scope>().unwrap_err().to_string().contains("or * for all"));
    }
}
