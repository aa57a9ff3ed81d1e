//! Access tokens: who has which, made and revoked by admins. `*` in place of a namespace means all of them.

use axum::{
    Extension, Json,
    extract::{FromRequestParts, State},
    http::{StatusCode, request::Parts},
};
use everstep_engine::access::{Asker, Grant};
use everstep_protocol::{AccessName, AccessTokenId, Millis, Scope, Timestamp};
use everstep_store::AccessRow;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    document::{Always, BodyProblems, NotFound},
    extract::{self, JsonBody, NoQuery, Strict},
    problem::Refusal,
    view::time,
};
use crate::Handle;

const PAGE_DEFAULT: u32 = 50;
const PAGE_MAX: u32 = 200;
/// How long a token opens anything where nothing is said: long enough for a quarter, short enough to be renewed by whoever knows how.
const LASTS: Millis = Millis::from_secs(90 * 86_400);
/// A hundred years: what lasts longer says `never`.
const LASTS_MAX: Millis = Millis::from_secs(36_500 * 86_400);
/// What a token is called that nobody has given a name.
pub const UNNAMED: &str = "unnamed";

/// `/v1/{namespace or *}/access-tokens`
#[derive(Debug)]
pub(super) struct ScopePath(pub(super) Scope);

impl<S: Sync> FromRequestParts<S> for ScopePath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let scope: String = extract::path(parts).await?;
        Ok(Self(scope.parse()?))
    }
}

/// `/v1/{namespace or *}/access-tokens/{id}`
#[derive(Debug)]
pub(super) struct AccessPath {
    within: Scope,
    id: AccessTokenId,
}

impl<S: Sync> FromRequestParts<S> for AccessPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let (within, id): (String, String) = extract::path(parts).await?;
        Ok(Self { within: within.parse()?, id: id.parse()? })
    }
}

/// An access token that is wanted.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = WantedAccessToken)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AccessBody {
    /// What people call it; default `unnamed`.
    #[schema(pattern = r"^[^\u0000-\u001f\u007f-\u009f]{1,60}$")]
    name: Option<String>,
    /// `viewer`, `producer`, `operator` or `admin`.
    #[schema(required, value_type = String, pattern = "^(viewer|producer|operator|admin)$")]
    role: Option<String>,
    /// How long it opens anything, such as `90d`, or `never` for without end; default 90 days.
    expires: Option<String>,
}

/// An access token, without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AccessToken)]
pub(super) struct View {
    id: String,
    name: String,
    role: &'static str,
    /// Where it counts; `*` for everywhere.
    namespace: String,
    /// `active`, `expired` or `revoked`.
    state: &'static str,
    created_at: String,
    created_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_by: Option<String>,
    /// About when it was used last: to five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_at: Option<String>,
}

impl View {
    fn of(row: &AccessRow, now: Timestamp) -> Self {
        let kept = &row.kept;
        let is_over = kept.expires_at.is_some_and(|at| at <= now);
        Self {
            id: row.id.to_string(),
            name: row.name.to_string(),
            role: kept.grant.role.word(),
            namespace: kept.grant.scope.to_string(),
            state: match kept.revoked_at {
                Some(_) => "revoked",
                None if is_over => "expired",
                None => "active",
            },
            created_at: time(row.created_at),
            created_by: row.created_by.clone(),
            expires_at: kept.expires_at.map(time),
            revoked_at: kept.revoked_at.map(time),
            revoked_by: row.revoked_by.clone(),
            used_at: row.used_at.map(time),
        }
    }
}

/// A new access token.
#[derive(Serialize, ToSchema)]
#[schema(as = NewAccessToken)]
pub(super) struct MadeView {
    #[serde(flatten)]
    view: View,
    /// What its owner sends as `Authorization: Bearer`. It is told here and never again.
    access_token: String,
}

/// Access tokens, newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AccessTokens)]
pub(super) struct Page {
    access_tokens: Vec<View>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// How many at most; default 50
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
    /// The id after which to go on: the `next` of an earlier page
    #[param(pattern = "^[0-9a-f]{32}$")]
    after: Option<String>,
}

/// Makes an access token. If the answer is lost, its secret is: list them, and revoke the one that nobody has.
#[utoipa::path(
    post,
    path = "/v1/{namespace}/access-tokens",
    operation_id = "create_access_token",
    tag = "access",
    params(ScopePath),
    request_body(content = AccessBody, description = "What is asked for"),
    responses((status = 201, description = "It is made; its secret is told once", body = MadeView), Always, BodyProblems)
)]
pub(super) async fn create(
    State(handle): State<Handle>,
    Extension(asker): Extension<Asker>,
    ScopePath(scope): ScopePath,
    Strict(NoQuery {}): Strict<NoQuery>,
    body: JsonBody,
) -> Result<(StatusCode, Json<MadeView>), Refusal> {
    let AccessBody { name, role, expires } = body.read()?;
    let name = AccessName::new(name.as_deref().unwrap_or(UNNAMED))?;
    let role = role.as_deref().unwrap_or_default().parse()?;
    let lasts = lasts(expires.as_deref()).map_err(Refusal::Access)?;
    let (token, row) = handle.issue_access_token(name, Grant { role, scope }, lasts, &asker).await?;
    let made = MadeView { view: View::of(&row, row.created_at), access_token: token.reveal() };
    Ok((StatusCode::CREATED, Json(made)))
}

/// Access tokens that count in a namespace and nowhere else, newest first; all for `*`. Their secrets are kept nowhere.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/access-tokens",
    operation_id = "list_access_tokens",
    tag = "access",
    params(ScopePath, ListQuery),
    responses((status = 200, description = "A page", body = Page), Always)
)]
pub(super) async fn list(
    State(handle): State<Handle>,
    ScopePath(within): ScopePath,
    Strict(query): Strict<ListQuery>,
) -> Result<Json<Page>, Refusal> {
    let limit = extract::limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let before = query.after.map(|id| id.parse()).transpose()?;
    let found = handle.store().access_tokens(&within, before, limit).await?;
    let is_full = found.what.len() == limit as usize;
    let next = found.what.last().filter(|_| is_full).map(|row| row.id.to_string());
    let access_tokens = found.what.iter().map(|row| View::of(row, found.now)).collect();
    Ok(Json(Page { access_tokens, next }))
}

/// Revokes an access token: within seconds it opens nothing any more, on any coordinator.
#[utoipa::path(
    delete,
    path = "/v1/{namespace}/access-tokens/{id}",
    operation_id = "revoke_access_token",
    tag = "access",
    params(AccessPath),
    responses((status = 200, description = "It is revoked, or was before", body = View), Always, NotFound)
)]
pub(super) async fn revoke(
    State(handle): State<Handle>,
    Extension(asker): Extension<Asker>,
    AccessPath { within, id }: AccessPath,
    Strict(NoQuery {}): Strict<NoQuery>,
) -> Result<Json<View>, Refusal> {
    let revoked = handle.revoke_access_token(&within, id, &asker).await?;
    let row =
        revoked.ok_or_else(|| Refusal::NotFound(format!("there is no access token {id} in {within}")))?;
    Ok(Json(View::of(&row, row.created_at)))
}

/// How long an access token is to open anything, as people write it; none for ever. The error names the value and the rule.
pub fn lasts(expires: Option<&str>) -> Result<Option<Millis>, String> {
    let refused = |why: &str| {
        let text = expires.unwrap_or_default();
        format!("expires {text:?} is refused, {why}")
    };
    match expires {
        None => Ok(Some(LASTS)),
        Some("never") => Ok(None),
        Some(text) => match Millis::parse(text) {
            Ok(span) if (Millis(1)..=LASTS_MAX).contains(&span) => Ok(Some(span)),
            Ok(_) => Err(refused("it must be from 1 ms to 36500d, or never")),
            Err(error) => Err(refused(&format!("it must be a duration such as 90d, or never: {error}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lasts_ninety_days_unless_it_is_said() {
        assert_eq!(lasts(None).unwrap(), Some(LASTS));
        assert_eq!(lasts(Some("90 days")).unwrap(), Some(LASTS));
        assert_eq!(lasts(Some("never")).unwrap(), None);
        for bad in ["", "soon", "0s", "40000d"] {
            let refused = lasts(Some(bad)).unwrap_err();
            assert!(refused.contains(&format!("expires {bad:?} is refused")), "{refused}");
        }
    }
}
