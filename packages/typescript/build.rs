//! Says to the linker that Node.js brings the symbols of its interface.

fn main() {
    napi_build::setup();
}
