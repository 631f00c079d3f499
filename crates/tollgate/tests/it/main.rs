//! The library, seen from outside.

mod model;
mod stories;
mod world;
