//! A visit: one request of the person, and proof that a form was sent from one of our pages, and not from another site.
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

/// One request of the person, from one of their browsers.
#[derive(Clone)]
pub(super) struct Visit {
    pub(super) site: Site,
    session: String,
}

impl FromRequestParts<Site> for Visit {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Self, StatusCode> {
        match parts.extensions.get() {
            Some(Visitor::Person(session)) => Ok(Self { site: site.clone(), session: session.clone() }),
            // Access control lets only people come here. If it ever does not, nothing may be shown or decided.
            _ => Err(StatusCode::UNAUTHORIZED),
        }
    }
}

impl Visit {
    /// The token that the forms of its pages carry.
    pub(super) fn token(&self) -> Digest {
        self.site.form_key().sign(&self.session)
    }

    /// Whether a form with this token came from a page of this browser.
    pub(super) fn sent(&self, token: &str) -> bool {
        token.parse::<Digest>().is_ok_and(|token| same(&token, &self.token()))
    }
}
