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

/// One that was just made: the secret alone on the last line.
#[must_use]
pub fn new_access_token(token: &AccessToken) -> String {
    let said = format!(
        "made access token {} ({}): {} in {}, expires {}; this is its secret, which is not told again:",
        token.id,
        token.name,
        token.role,
        token.namespace,
        token.expires_at.as_deref().unwrap_or("never"),
    );
    format!("{}\n{}\n", plain(&said), plain(token.access_token.as_deref().unwrap_or_default()))
}
