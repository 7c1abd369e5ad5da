//! What records with inputs INPA, INPB... share: fetching them into A, B..., and posting those that changed.

use fodo_data::{EventMask, Meta};

use crate::link::external::ExternalPv;
use crate::link::{Link, Target};
use crate::process::post::RecordPosts;
use crate::process::step::{LinkError, Step};
use crate::record::levels::HasAlarmLimits;
use crate::record::simulation::constant;
use crate::record::{CHANGED, Record, index_in};

/// The names of the links, for messages.
pub(crate) const NAMES: [&str; 21] = [
    "INPA", "INPB", "INPC", "INPD", "INPE", "INPF", "INPG", "INPH", "INPI", "INPJ", "INPK", "INPL", "INPM", "INPN",
    "INPO", "INPP", "INPQ", "INPR", "INPS", "INPT", "INPU",
];

/// A record with inputs; [`inputs!`] implements it, and takes the name of LA if the record calls that field
/// differently.
pub(crate) trait InputLinks: Record {
    /// The field numbers of A and LA; those of the other inputs follow.
    const FIRST: u16;
    const FIRST_LAST: u16;

    fn links(&self) -> &[Link];

    /// A, B...
    fn args(&mut self) -> &mut [f64];

    /// LA, LB...
    fn last_args(&mut self) -> &mut [f64];
}

macro_rules! inputs {
    ($record:ident) => {
        inputs!($record, "LA");
    };
    ($record:ident, $last:literal) => {
        impl $crate::record::inputs::InputLinks for $record {
            const FIRST: u16 = $record::at("A");
            const FIRST_LAST: u16 = $record::at($last);

            fn links(&self) -> &[$crate::link::Link] {
                &self.inputs
            }

            fn args(&mut self) -> &mut [f64] {
                &mut self.args
            }

            fn last_args(&mut self) -> &mut [f64] {
                &mut self.last_args
            }
        }
    };
}

pub(crate) use inputs;

/// Sets the inputs with constant links to their initial values.
pub(crate) fn init<R: InputLinks>(record: &mut R) {
    for index in 0..record.links().len() {
        init_one(record, index);
    }
}

/// Like [`init`], for one input. Returns whether its link is a constant with a value.
pub(crate) fn init_one<R: InputLinks>(record: &mut R, index: usize) -> bool {
    let value = record.links().get(index).and_then(constant);
    match (value, record.args().get_mut(index)) {
        (Some(value), Some(arg)) => {
            *arg = value;
            true
        }
        _ => false,
    }
}

/// Fetches every input. Returns whether all could be read.
pub(crate) fn fetch_all<R: InputLinks>(step: &mut Step<'_, '_, R>) -> bool {
    let mut is_complete = true;
    let mut from = 0;
    // A single lock skips all constant links: most records use two of their 21 inputs.
    while let Some(index) = next_with_target(step, from) {
        is_complete &= fetch(step, index).is_ok();
        from = index + 1;
    }
    is_complete
}

/// The first input, from index `from` on, whose link is not constant.
fn next_with_target<R: InputLinks>(step: &mut Step<'_, '_, R>, from: usize) -> Option<usize> {
    let record = step.lock();
    let mut links = record.links().iter().enumerate().skip(from);
    links.find(|(_, link)| !link.is_constant()).map(|(index, _)| index)
}

/// Fetches one input.
pub(crate) fn fetch<R: InputLinks>(step: &mut Step<'_, '_, R>, index: usize) -> Result<(), LinkError> {
    if step.lock().links().get(index).is_none_or(Link::is_constant) {
        return Ok(());
    }
    let value = step.read_link(NAMES[index], |record: &R| &record.links()[index])?;
    if let (Some(value), Some(arg)) = (value, step.lock().args().get_mut(index)) {
        *arg = value;
    }
    Ok(())
}

/// Posts the inputs that changed since they were last posted, or all if `are_all_posted`.
pub(crate) fn post<R: InputLinks>(record: &mut R, posts: &mut RecordPosts, mask: EventMask, are_all_posted: bool) {
    if !are_all_posted && !has_changed_inputs(record) {
        return;
    }
    for index in 0..record.args().len() {
        let (now, before) = (record.args()[index], record.last_args()[index]);
        // A NaN always counts as changed, as in Base.
        if now != before || are_all_posted {
            posts.post(record, R::FIRST + index as u16, mask | CHANGED);
            record.last_args()[index] = now;
        }
    }
}

/// Whether an input has changed since it was last posted. In one loop without exits, which the processor executes several
/// inputs at a time: most records use two of their 21 inputs.
fn has_changed_inputs<R: InputLinks>(record: &mut R) -> bool {
    let mut now = [0.0; NAMES.len()];
    let n = record.args().len().min(now.len());
    now[..n].copy_from_slice(&record.args()[..n]);
    record.last_args().iter().zip(&now).fold(false, |has_changed, (before, now)| has_changed | (before != now))
}

/// Takes units, precision and limits of an input from the target of its link. `None`: the field is not an input.
pub(crate) fn meta<R: InputLinks>(record: &mut R, field: u16, precision: i16, meta: &mut Meta) -> Option<Target> {
    let input = [R::FIRST, R::FIRST_LAST].into_iter().find_map(|first| {
        let index = field.checked_sub(first)?;
        record.links().get(usize::from(index))
    })?;
    meta_of_link(input, precision, meta)
}

/// Gives the inputs the display limits of the record.
pub(crate) fn meta_from_record<R: InputLinks + HasAlarmLimits>(record: &mut R, field: u16, meta: &mut Meta) {
    let n_inputs = record.links().len();
    if [R::FIRST, R::FIRST_LAST].into_iter().any(|first| index_in(field, first, n_inputs).is_some()) {
        meta.display = record.limits().display;
        meta.control = meta.display;
    }
}

/// Takes units, precision and limits of a value from a link's target; without a target the precision is `precision`.
pub(crate) fn meta_of_link(link: &Link, precision: i16, meta: &mut Meta) -> Option<Target> {
    if let Some(there) = link.external().and_then(ExternalPv::meta) {
        *meta = Meta { control: meta.control, ..(*there).clone() };
        return None;
    }
    let target = link.target();
    if !matches!(target, Target::Field { .. }) {
        meta.units = Default::default();
        meta.precision = precision;
        meta.display = Default::default();
    }
    Some(target)
}
