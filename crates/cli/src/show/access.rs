//! Access tokens, for people.

use super::{finish, plain, table};
use crate::answer::AccessToken;

/// A list of access tokens.
#[must_use]
pub fn access_tokens(tokens: &[AccessToken]) -> String {
    let mut table = table(&["ID", "NAME", "ROLE", "NAMESPACE", "STATE", "CREATED", "EXPIRES", "USED"]);
    for token in tokens {
        table.add_row([
            plain(&token.id),
            plain(&token.name),
            plain(&token.role),
            plain(&token.namespace),
            plain(&token.state),
            plain(&token.created_at),
            plain(token.expires_at.as_deref().unwrap_or("never")),
            plain(token.used_at.as_deref().unwrap_or_default()),
        ]);
    }
    finish(table)
}

/// What is said of one that was just made, without its secret.
#[must_use]
pub fn about_new_access_token(token: &AccessToken) -> String {
    plain(&format!(
        "made access token {} ({}): {} in {}, expires {}; its secret follows, and is not told again:",
        token.id,
        token.name,
        token.role,
        token.namespace,
        token.expires_at.as_deref().unwrap_or("never"),
    ))
}

/// The secret of one that was just made, alone on a line.
#[must_use]
pub fn secret(token: &AccessToken) -> String {
    format!("{}\n", plain(token.access_token.as_deref().unwrap_or_default()))
}
