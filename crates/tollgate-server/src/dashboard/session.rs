//! Proof that a form was sent from one of our pages, and not from another site.
//!
//! A browser gets a cookie that scripts cannot read and that requests from other sites do not carry. A form carries a
//! token made from the cookie and from a secret of this run of the server. A site that cannot read our pages cannot make
//! a token, and a token from an earlier run or from another browser is not valid.

use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::digest::Digest;
use tollgate::name::TurnId;

use crate::site::Site;
use crate::visitor::same;

const NAME: &str = "tollgate-session";

/// One browser.
pub(super) struct Session {
    id: String,
    is_new: bool,
}

impl Session {
    /// The session that these headers name, or else a new one.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let known = pairs.find(|(name, value)| *name == NAME && value.parse::<TurnId>().is_ok());
        match known {
            Some((_, id)) => Self { id: id.to_owned(), is_new: false },
            // Turn ids are random, as a session id must be. Without a random source no token is valid.
            None => Self { id: TurnId::new().map(|id| id.to_string()).unwrap_or_default(), is_new: true },
        }
    }

    /// The token that its forms carry.
    pub(super) fn token(&self, site: &Site) -> String {
        // Hashed twice with the key, so that no token can be extended to another one.
        let inner = Digest::of(format!("{}\n{}", site.form_key(), self.id).as_bytes());
        Digest::of(format!("{}\n{inner}", site.form_key()).as_bytes()).to_string()
    }

    /// Whether a form with this token came from a page of this session.
    pub(super) fn sent(&self, site: &Site, token: &str) -> bool {
        !self.is_new && !self.id.is_empty() && same(token.as_bytes(), self.token(site).as_bytes())
    }

    /// The cookie, if the browser does not have it yet.
    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let cookie = format!("{NAME}={}; Path=/; HttpOnly; SameSite=Strict", self.id);
        if self.is_new
            && let Ok(value) = HeaderValue::from_str(&cookie)
        {
            headers.insert::<HeaderName>(SET_COOKIE, value);
        }
        headers
    }
}
