//! The library stays loaded until the process ends: its threads run on after a class loader has gone.
//!
//! Only linkers of Linux have an option for that. On other systems the JVM may unload the library with its class loader, so that
//! the loader must live as long as the process.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
