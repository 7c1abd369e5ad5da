//! Another PV with the value of a PV in another form: a text as characters, or a brightness in percent.

use std::sync::Arc;

use fodo_data::{DisplayForm, EventMask, Kind, Limits, Meta, Reading, Value};
use fodo_net::{Completion, Peer, Post, Posts, PutRefusal, Pv, PvFacts, SharedPv};

use crate::limit::LONG_TEXT_BYTES_MAX;

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViewForm {
    /// The bytes of a text and a NUL, as `$` after the name of a field in an IOC. Channel Access cuts other texts after 39 bytes.
    LongText,
    /// A number from 0 to 1 in percent.
    Percent,
}

/// A PV whose value is that of another one.
pub(super) struct ViewPv {
    base: Arc<dyn Pv>,
    form: ViewForm,
    posts: Posts,
}

impl ViewPv {
    pub fn new(base: &SharedPv, form: ViewForm) -> ViewPv {
        // As many as an array or a number of its own has.
        let n_posts = if form == ViewForm::LongText { 2 } else { 8 };
        ViewPv { base: base.clone().into(), form, posts: Posts::new(n_posts) }
    }

    /// Sends what was posted to the other PV.
    pub fn post(&self, reading: &Reading, is_new_alarm: bool) {
        if !self.posts.has_listeners() {
            return;
        }
        let value = EventMask::VALUE | EventMask::LOG;
        let mask = if is_new_alarm { value | EventMask::ALARM } else { value };
        self.posts.post(Post { mask, reading: self.shown(reading.clone()) });
    }

    fn shown(&self, reading: Reading) -> Reading {
        let value = match self.form {
            ViewForm::LongText => characters(&reading.value),
            ViewForm::Percent => (reading.value.to_f64().unwrap_or_default() * 100.0).into(),
        };
        Reading { value, ..reading }
    }
}

/// The bytes of a text and a NUL.
fn characters(value: &Value) -> Value {
    let text = value.first().map(|scalar| scalar.to_text(None)).unwrap_or_default();
    let n_bytes = text.as_bytes().len().min(LONG_TEXT_BYTES_MAX - 1);
    let mut bytes = text.as_bytes()[..n_bytes].to_vec();
    bytes.push(0);
    Value::from(bytes)
}

impl Pv for ViewPv {
    fn facts(&self) -> PvFacts {
        let (kind, count_max) = match self.form {
            ViewForm::LongText => (Kind::U8, LONG_TEXT_BYTES_MAX as u32),
            ViewForm::Percent => (Kind::F64, 1),
        };
        PvFacts { kind, count_max, is_read_only: self.base.is_read_only() }
    }

    fn read(&self) -> Reading {
        self.shown(self.base.read())
    }

    fn with_reading(&self, subscribe: &mut dyn FnMut(Reading)) {
        // A change after this is posted here after it was posted to the other PV, so that none is lost.
        self.base.with_reading(&mut |reading| subscribe(self.shown(reading)));
    }

    fn put(&self, value: Value, by: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        let rejected = |error: fodo_data::ConvertError| PutRefusal::Rejected(error.to_string());
        let value = match self.form {
            ViewForm::LongText if value.kind() == Kind::Text => value,
            ViewForm::LongText => {
                let bytes = value.to_kind(Kind::U8, None).map_err(rejected)?;
                Value::from(bytes.long_text().unwrap_or_default())
            }
            ViewForm::Percent => (value.to_f64().map_err(rejected)? / 100.0).into(),
        };
        self.base.put(value, by, completion)
    }

    fn posts(&self) -> &Posts {
        &self.posts
    }

    fn meta(&self) -> Arc<Meta> {
        let base = self.base.meta();
        let percent = |limits: Limits| Limits { low: 100.0 * limits.low, high: 100.0 * limits.high };
        Arc::new(match self.form {
            ViewForm::LongText => Meta { form: DisplayForm::String, ..(*base).clone() },
            ViewForm::Percent => Meta {
                description: base.description.clone(),
                units: "%".into(),
                precision: 0,
                display: percent(base.display),
                warning: percent(base.warning),
                alarm: percent(base.alarm),
                control: percent(base.control),
                ..Meta::default()
            },
        })
    }
}
