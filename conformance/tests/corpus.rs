//! Every input that fuzzing has kept is fed again; no nightly toolchain is needed for that.
#![forbid(unsafe_code)]

#[path = "../../fuzz/src/ca.rs"]
mod ca;

#[test]
fn every_kept_input_is_taken_without_a_panic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/ca");
    let mut n_inputs = 0;

    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        ca::feed(&std::fs::read(path).unwrap());
        n_inputs += 1;
    }

    assert!(n_inputs > 0);
}
