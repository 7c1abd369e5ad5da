//! Compares `fodo ioc` with softIoc, in every scenario and at random.
#![forbid(unsafe_code)]

use fodo_conformance::gate::differences::IntendedDifferences;
use fodo_conformance::gate::pair::{Compare, ServerPair, report};
use fodo_conformance::gate::random::RandomCase;
use fodo_conformance::gate::{Case, GateFinding, scenario};

/// Seeds that every run tests; `GATE_SEEDS=1000..1200` selects others.
const SEEDS: std::ops::Range<u64> = 0..20;

/// Number of cases that share one pair of servers.
const CASES_PER_PAIR: usize = 20;

/// How often a case is repeated whose steps were late.
const REPEATS_MAX: usize = 5;

/// Maximum number of rounds to shrink a finding.
const SHRINK_ROUNDS: usize = 40;

#[test]
fn every_scenario_matches_softioc_except_for_intended_differences() {
    let cases = scenario::all().unwrap();
    let mut meant = IntendedDifferences::read().unwrap();
    let mut pair = ServerPair::start(&cases).unwrap();
    let mut findings = Vec::new();

    for (number, case) in cases.iter().enumerate() {
        match pair.run(number, case, Compare::Each, &mut meant) {
            Ok(None) => {}
            Ok(Some(finding)) => findings.push(report(case, &finding)),
            Err(failure) => findings.push(format!("{}: {failure}", case.name)),
        }
    }

    println!("{} scenarios; {} intended differences", cases.len(), meant.len());
    assert!(!cases.is_empty());
    assert!(findings.is_empty(), "{}\n{} of {} scenarios", findings.join("\n"), findings.len(), cases.len());
    let stale = meant.stale();
    assert!(stale.is_empty(), "docs/reference/differences.md lists differences that no longer exist: {stale:?}");
}

#[test]
fn random_records_and_steps_behave_as_on_softioc() {
    let mut meant = IntendedDifferences::read().unwrap();
    let mut found = Vec::new();
    let seeds: Vec<u64> = seeds().collect();

    for seeds in seeds.chunks(CASES_PER_PAIR) {
        found.extend(tried(seeds.iter().map(|seed| RandomCase::new(*seed)).collect(), Compare::Each, &mut meant));
    }

    println!("{} seeds", seeds.len());
    let n_found = found.len();
    let mut reports: Vec<String> = found.iter().map(|(random, finding)| report(&random.case(), finding)).collect();
    // The smallest version of the first finding is the one to start with.
    reports.extend(found.into_iter().next().map(|(random, finding)| smallest(random, finding, &mut meant)));
    assert!(n_found == 0, "{}\n{n_found} of {} seeds", reports.join("\n"), seeds.len());
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("GATE_SEEDS") else { return SEEDS };
    let (start, end) = range.split_once("..").expect("GATE_SEEDS=1000..1200");
    start.parse().unwrap()..end.parse().unwrap()
}

/// The cases that show a difference; with [`Compare::Last`] only the first.
fn tried(
    randoms: Vec<RandomCase>,
    compare: Compare,
    meant: &mut IntendedDifferences,
) -> Vec<(RandomCase, GateFinding)> {
    let cases: Vec<Case> = randoms.iter().map(RandomCase::case).collect();
    let mut pair = ServerPair::start(&cases).unwrap();
    let findings = randoms.into_iter().zip(&cases).enumerate().filter_map(|(number, (random, case))| {
        let mut finding = find(&mut pair, number, case, compare, meant);
        for _ in 0..REPEATS_MAX {
            if !finding.as_ref().is_some_and(|finding| finding.is_late) {
                return finding.map(|finding| (random, finding));
            }
            finding = find(&mut ServerPair::start(std::slice::from_ref(case)).unwrap(), 0, case, compare, meant);
        }
        println!("{}: this machine is too busy to compare it", case.name);
        None
    });
    findings.take(if compare == Compare::Last { 1 } else { usize::MAX }).collect()
}

fn find(
    pair: &mut ServerPair,
    number: usize,
    case: &Case,
    compare: Compare,
    meant: &mut IntendedDifferences,
) -> Option<GateFinding> {
    pair.run(number, case, compare, meant).unwrap_or_else(|failure| panic!("{}: {failure}", case.name))
}

/// The report of a finding after removing what it does not need.
fn smallest(random: RandomCase, finding: GateFinding, meant: &mut IntendedDifferences) -> String {
    let (mut random, mut finding) = (random.until(finding.n_steps), finding);
    for _ in 0..SHRINK_ROUNDS {
        let Some((next, found)) = tried(random.smaller(), Compare::Last, meant).pop() else { break };
        (random, finding) = (next.until(found.n_steps), found);
    }
    format!("the first finding, reduced: {}", report(&random.case(), &finding))
}
