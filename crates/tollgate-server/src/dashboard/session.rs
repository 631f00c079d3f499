//! That a form was sent by a person at one of our pages, and by no other site.
//!
//! A browser gets a cookie that no script can read and that is not sent along from other sites. A form carries a token
//! that is made of the cookie and of the server's seal; who cannot read our pages cannot make one, and one from an
//! earlier start of the server, or of another browser, is none.

use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::digest::Digest;
use tollgate::name::TurnId;

use crate::site::Site;
use crate::visitor::same;

const NAME: &str = "tollgate-session";

/// A browser.
pub(super) struct Session {
    id: String,
    is_new: bool,
}

impl Session {
    /// The one that these headers come from; a new one if they tell none.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let told = pairs.find(|(name, value)| *name == NAME && value.parse::<TurnId>().is_ok());
        match told {
            Some((_, id)) => Self { id: id.to_owned(), is_new: false },
            // The ids of turns are random, which is all that is needed. Without randomness there is no token that fits.
            None => Self { id: TurnId::new().map(|id| id.to_string()).unwrap_or_default(), is_new: true },
        }
    }

    /// What its forms carry.
    pub(super) fn token(&self, site: &Site) -> String {
        // Hashed twice with the seal, so that nobody can go on from a token to another one.
        let inner = Digest::of(format!("{}\n{}", site.seal(), self.id).as_bytes());
        Digest::of(format!("{}\n{inner}", site.seal()).as_bytes()).to_string()
    }

    /// Whether a form is one of its own.
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
