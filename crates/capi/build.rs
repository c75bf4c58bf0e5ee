//! Names the shared library as its users will look for it: `libthroughline.so` and the version of its
//! interface, which changes when programs have to be compiled again.

fn main() {
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libthroughline.so.{major}");
    println!("cargo:rerun-if-changed=build.rs");
}
