//! What only builds with the profile `dev` have, and those that inherit from it: the places at which tests kill the program
//! (`src/failpoint.rs`), and a program that is loaded at a fixed address.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(failpoints)");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("PROFILE") != "debug" {
        return;
    }
    println!("cargo::rustc-cfg=failpoints");
    // Without optimisation a position-independent program has 260,000 relocations, which the loader applies at each start: 2
    // of the 4 ms of processor time of each process that a test starts.
    let platform = ["OS", "ARCH", "ENV"].map(|part| variable(&format!("CARGO_CFG_TARGET_{part}")));
    let is_static = variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|feature| feature == "crt-static");
    if platform == ["linux", "x86_64", "gnu"] && !is_static {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
