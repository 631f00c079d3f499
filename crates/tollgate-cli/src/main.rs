//! The command `tollgate`.
fn main() {}
