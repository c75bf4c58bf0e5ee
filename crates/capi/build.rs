//! Names the shared library as its users will look for it: `libthroughline.so` and the version of its
//! interface, which changes when programs have to be compiled again: below 1.0, with each minor version.
//! Nothing is exported but that interface.

fn main() {
    let part = |name| std::env::var(name).unwrap_or_default();
    let interface = match part("CARGO_PKG_VERSION_MAJOR").as_str() {
        "0" => format!("0.{}", part("CARGO_PKG_VERSION_MINOR")),
        major => major.to_owned(),
    };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libthroughline.so.{interface}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    println!("cargo:rerun-if-changed=build.rs");
}
