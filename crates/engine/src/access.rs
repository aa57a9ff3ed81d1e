//! Whether a request may pass: what an access token is worth now, and whether that is enough.

use everstep_protocol::{AccessHash, Role, Scope, Timestamp};

/// A role, and where it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The role.
    pub role: Role,
    /// Where.
    pub scope: Scope,
}

impl Grant {
    /// Whether this is enough for what needs `role` in `scope`.
    #[must_use]
    pub fn allows(&self, role: Role, scope: &Scope) -> bool {
        self.role >= role && self.scope.covers(scope)
    }
}

/// Who asks for something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Who, as far as is known: the name and id of an access token, or `anonymous`.
    pub who: String,
    /// From where: an address, or the way on which it came.
    pub from: String,
}

/// Of whom nothing is known: no token was asked for, or none was needed.
pub const ANONYMOUS: &str = "anonymous";

impl Asker {
    /// The program that has the engine in it.
    #[must_use]
    pub fn program() -> Self {
        Self { who: ANONYMOUS.to_owned(), from: "program".to_owned() }
    }

    /// Somebody, on the command line of whoever has the database.
    #[must_use]
    pub fn command_line() -> Self {
        Self { who: "whoever has the database".to_owned(), from: "command line".to_owned() }
    }
}

/// What is kept of an access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Of its secret.
    pub hash: AccessHash,
    /// What it stands for.
    pub grant: Grant,
    /// From when on it opens nothing; none for never.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// Why an access token opens nothing. Whoever does not have the secret is told the first alone, whatever is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// There is none with this id and secret.
    #[error("the access token is not known here")]
    Unknown,
    /// Its time is over.
    #[error("the access token has expired")]
    Expired,
    /// Somebody has revoked it.
    #[error("the access token was revoked")]
    Revoked,
}

/// What a token of this hash is worth now.
pub fn admit(kept: Option<&Kept>, hash: &AccessHash, now: Timestamp) -> Result<Grant, Denied> {
    let kept = kept.filter(|kept| kept.hash == *hash).ok_or(Denied::Unknown)?;
    if kept.revoked_at.is_some() {
        return Err(Denied::Revoked);
    }
    if kept.expires_at.is_some_and(|at| at <= now) {
        return Err(Denied::Expired);
    }
    Ok(kept.grant.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    fn kept(expires_at: Option<i64>, revoked_at: Option<i64>) -> Kept {
        Kept {
            hash: AccessHash([1; 32]),
            grant: Grant { role: Role::Operator, scope: "a".parse().unwrap() },
            expires_at: expires_at.map(Timestamp),
            revoked_at: revoked_at.map(Timestamp),
        }
    }

    #[test]
    fn a03_a_token_opens_until_it_expires_or_is_revoked() {
        let admit = |kept: &Kept| admit(Some(kept), &AccessHash([1; 32]), NOW).map(|grant| grant.role);
        assert_eq!(admit(&kept(None, None)), Ok(Role::Operator));
        assert_eq!(admit(&kept(Some(1_001), None)), Ok(Role::Operator));
        assert_eq!(admit(&kept(Some(1_000), None)), Err(Denied::Expired));
        assert_eq!(admit(&kept(None, Some(1))), Err(Denied::Revoked));
        assert_eq!(admit(&kept(Some(1), Some(1))), Err(Denied::Revoked));
    }

    #[test]
    fn a01_without_the_secret_nobody_learns_what_is_kept() {
        let other = AccessHash([2; 32]);
        for kept in [None, Some(kept(None, None)), Some(kept(Some(1), None)), Some(kept(None, Some(1)))] {
            assert_eq!(admit(kept.as_ref(), &other, NOW), Err(Denied::Unknown));
        }
    }

    #[test]
    fn a02_a_role_counts_in_its_namespace_and_for_less() {
        let grant = kept(None, None).grant;
        let of = |name: &str| name.parse::<Scope>().unwrap();
        assert!(grant.allows(Role::Viewer, &of("a")) && grant.allows(Role::Operator, &of("a")));
        assert!(!grant.allows(Role::Admin, &of("a")) && !grant.allows(Role::Viewer, &of("b")));
        assert!(!grant.allows(Role::Viewer, &Scope::All), "what belongs to no namespace belongs to all");
        let all = Grant { scope: Scope::All, ..grant };
        assert!(all.allows(Role::Operator, &of("b")) && all.allows(Role::Operator, &Scope::All));
    }
}
