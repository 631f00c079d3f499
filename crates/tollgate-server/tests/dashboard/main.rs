//! The dashboard, tested over HTTP and in a real browser.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod access;
mod acting;
mod big;
mod browser;
mod changes;
mod credentials;
mod deciding;
mod finding;
mod forgery;
mod hostile;
mod install;
mod live;
mod lively;
mod pages;
mod pictures;
mod shown;
mod stories;
mod telling;
mod world;
