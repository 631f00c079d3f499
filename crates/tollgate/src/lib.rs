//! tollgate
pub mod digest;
pub mod error;
pub mod lock;
pub mod name;
pub mod path;
pub mod refusal;
pub mod settings;
pub mod turn;
pub mod vault;
