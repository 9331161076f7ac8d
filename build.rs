//! What only builds without optimisation have: the places to be killed at that tests use (`src/failpoint.rs`), and a program
//! that is not moved in memory at each start.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(failpoints)");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if !is("PROFILE", "debug") {
        return;
    }
    println!("cargo::rustc-cfg=failpoints");
    // A program of this size without optimisation has 260,000 addresses that a start in another place corrects: 2 of the 4
    // ms of processor time of each process that a test starts.
    if is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
