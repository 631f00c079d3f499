//! Proof that a form was sent from one of our pages, and not from another site.
//!
//! Each browser has a session, by a cookie that scripts cannot read and that requests from other sites do not carry. A form
//! carries a token made from the session and from a secret of this run of the server. A site that cannot read our pages
//! cannot make a token, and a token from an earlier run or from another browser is not valid.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use tollgate::digest::Digest;

use crate::access::Visitor;
use crate::secret::same;
use crate::site::Site;

/// One browser of the person.
pub(super) struct PersonSession(String);

impl<S: Sync> FromRequestParts<S> for PersonSession {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        match parts.extensions.get() {
            Some(Visitor::Person(session)) => Ok(Self(session.clone())),
            // Access control lets only people come here. If it ever does not, nothing may be shown or decided.
            _ => Err(StatusCode::UNAUTHORIZED),
        }
    }
}

impl PersonSession {
    /// The token that its forms carry.
    pub(super) fn token(&self, site: &Site) -> String {
        site.form_key().sign(&self.0).to_string()
    }

    /// Whether a form with this token came from a page of this session.
    pub(super) fn sent(&self, site: &Site, token: &str) -> bool {
        token.parse::<Digest>().is_ok_and(|token| same(&token, &site.form_key().sign(&self.0)))
    }
}
