//! The conversion of the normative types of pvAccess to and from a [`Reading`].

use std::sync::Arc;

use crate::{
    Array, BitSet, DisplayForm, EventMask, Kind, Meta, MetaParts, NodeKind, NumberNodes, Reading, Scalar, Severity,
    Status, Structure, StructureError, StructureType, Text, Value,
};

macro_rules! roles {
    ($($(#[doc = $what:literal])* $role:ident $path:literal;)*) => {
        /// What a node of a normative type holds. [`NormativeLayout`] has an example.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Role {
            /// Something that a [`Reading`] does not contain.
            Other,
            $($(#[doc = $what])* $role,)*
        }

        /// The path of each role.
        const PATHS: &[(Role, &str)] = &[$((Role::$role, $path)),*];
    };
}

roles! {
    /// The scalar or array.
    Value "value";
    /// The index of the state of an enum.
    Index "value.index";
    /// The names of the states of an enum.
    Choices "value.choices";
    /// The severity of the alarm, 0 to 4.
    Severity "alarm.severity";
    /// The class of the alarm's reason, 0 to 7.
    Status "alarm.status";
    /// The text of the alarm.
    Message "alarm.message";
    /// The seconds of the time stamp since 1970.
    Seconds "timeStamp.secondsPastEpoch";
    /// The nanoseconds of the time stamp.
    Nanoseconds "timeStamp.nanoseconds";
    /// The user tag of the time stamp.
    UserTag "timeStamp.userTag";
    /// The low end of the display range.
    DisplayLow "display.limitLow";
    /// The high end of the display range.
    DisplayHigh "display.limitHigh";
    /// What the value is.
    Description "display.description";
    /// Engineering units.
    Units "display.units";
    /// Digits to show after the decimal point.
    Precision "display.precision";
    /// The precision in the older metadata, as a format of C.
    Format "display.format";
    /// How to show the value.
    Form "display.form.index";
    /// The names of all forms.
    FormChoices "display.form.choices";
    /// The low end of the range that a put may set.
    ControlLow "control.limitLow";
    /// The high end of the range that a put may set.
    ControlHigh "control.limitHigh";
    /// The limit below which a major alarm is raised.
    AlarmLow "valueAlarm.lowAlarmLimit";
    /// The limit below which a minor alarm is raised.
    WarningLow "valueAlarm.lowWarningLimit";
    /// The limit above which a minor alarm is raised.
    WarningHigh "valueAlarm.highWarningLimit";
    /// The limit above which a major alarm is raised.
    AlarmHigh "valueAlarm.highAlarmLimit";
}

/// A part of a reading, as it is stored in one node. [`NormativeLayout::part`] returns it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'a> {
    /// The value as it is.
    Value(&'a Value),
    /// An integer.
    Integer(i64),
    /// A limit.
    Number(f64),
    /// A text.
    Text(&'a [u8]),
    /// State names.
    Texts(&'a [Text]),
    /// The names of the display forms.
    Forms(&'static [&'static str]),
}

/// Where a type has the parts of a reading.
///
/// Created once for each type, so that no conversion searches for names. Accepts types of other programs: members may
/// be missing, and numbers may have other kinds.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_data::{
///     EventMask, Kind, Meta, MetaParts, NormativeLayout, Part, Reading, Role, Scalar, Structure, StructureError,
///     normative_type,
/// };
///
/// let layout = NormativeLayout::of(Arc::new(normative_type(Kind::F64, false))).expect("it has a value");
/// assert_eq!(layout.role(layout.value_bit()), Role::Value);
///
/// let reading = Reading::bare(1.5.into());
/// let mut structure = Structure::new(layout.kind().clone());
/// layout.write(&reading, EventMask::VALUE, &mut structure)?;
/// assert_eq!(structure.get("value"), Some(&1.5.into()));
/// assert_eq!(layout.reading(&structure), reading);
/// assert!(!layout.has_meta(structure.changed()));
/// assert_eq!(layout.number_nodes().map(|nodes| nodes.without_alarm), Some(1 << layout.value_bit() | 7 << 7));
/// assert_eq!(layout.meta(&structure), Meta::default());
/// assert_eq!(layout.received(&structure), reading);
///
/// // What a server sends for a change of the value, and how a client stores it.
/// assert!(layout.marks(EventMask::VALUE).contains(layout.value_bit()));
/// assert!(layout.has_meta(layout.whole(EventMask::VALUE)));
/// let bare = NormativeLayout::with_parts(layout.kind().clone(), Some(MetaParts(0))).expect("it has a value");
/// assert!(bare.with_tag_bits(8).marks(EventMask::PROPERTY).iter().count() == 1, "only the description");
/// assert_eq!(layout.part(Role::UserTag, &reading), Some(Part::Integer(0)));
/// assert_eq!(Part::Integer(300).number(Kind::U8), Some(Scalar::U8(255)));
/// let mut received = Reading::bare(0.0.into());
/// layout.store(layout.value_bit(), 2.5.into(), &mut received);
/// assert_eq!(received.value, 2.5.into());
/// # Ok::<(), StructureError>(())
/// ```
#[derive(Clone, Debug)]
pub struct NormativeLayout {
    kind: Arc<StructureType>,
    /// The role of each node.
    roles: Vec<Role>,
    value_bit: usize,
    /// The nodes of each combination of event kinds, by value (1), alarm (2) and property (4).
    marks: [BitSet; 8],
    /// The same with all metadata, also that which never changes.
    whole: [BitSet; 8],
    meta: BitSet,
    number: Option<NumberNodes>,
    /// The bits of the nanoseconds that are the user tag.
    tag_mask: u32,
}

impl NormativeLayout {
    /// Finds the parts of a reading in a type; `None` if it has no scalar, array or enum called `value`. Its source has
    /// the usual metadata ([`MetaParts::of`]).
    pub fn of(kind: Arc<StructureType>) -> Option<NormativeLayout> {
        NormativeLayout::with_parts(kind, None)
    }

    /// The same for a source with these parts of the metadata; `None`: the usual ones.
    pub fn with_parts(kind: Arc<StructureType>, parts: Option<MetaParts>) -> Option<NormativeLayout> {
        let mut roles = vec![Role::Other; kind.nodes().len()];
        for (role, path) in PATHS {
            if let Some(bit) = kind.node(path).filter(|&bit| holds(&kind.nodes()[bit].kind, *role)) {
                roles[bit] = *role;
            }
        }
        let value_bit = roles.iter().position(|role| matches!(role, Role::Value | Role::Index))?;
        let bits =
            |is_it: &dyn Fn(Role) -> bool| -> BitSet { (0..roles.len()).filter(|&bit| is_it(roles[bit])).collect() };
        let parts = parts.unwrap_or_else(|| usual_parts(&kind.nodes()[value_bit].kind));
        let meta = bits(&is_meta);
        let value = bits(&is_current);
        let mut alarm = bits(&|role| matches!(role, Role::Severity | Role::Status | Role::Message));
        alarm.union_with(&value);
        let served = bits(&|role| is_meta(role) && is_served(role, parts));
        let property =
            bits(&|role| is_meta(role) && is_served(role, parts) && !matches!(role, Role::Form | Role::FormChoices));
        let mut marks: [BitSet; 8] = Default::default();
        for (index, marks) in marks.iter_mut().enumerate() {
            for (bit, part) in [&value, &alarm, &property].into_iter().enumerate() {
                if index >> bit & 1 != 0 {
                    marks.union_with(part);
                }
            }
        }
        let mut whole = marks.clone();
        whole.iter_mut().for_each(|whole| whole.union_with(&served));
        let number = NumberNodes::of(&kind, &roles);
        Some(NormativeLayout { roles, value_bit, marks, whole, meta, number, kind, tag_mask: 0 })
    }

    /// The same layout, in which the lowest bits of the nanoseconds are the user tag instead of that of the reading
    /// (`Q:time:tag` of QSRV). `bits`: at most 32.
    pub fn with_tag_bits(self, bits: u8) -> NormativeLayout {
        let tag_mask = u32::MAX.checked_shr(32 - u32::from(bits.min(32))).unwrap_or(0);
        let number = self.number.filter(|_| tag_mask == 0);
        NormativeLayout { tag_mask, number, ..self }
    }

    /// The type.
    pub fn kind(&self) -> &Arc<StructureType> {
        &self.kind
    }

    /// Where the nodes of a number are, for those who transfer them in one step; `None` if the value is not a number, or
    /// if its nodes are not those of the normative types. See the example of [`NormativeLayout`].
    #[inline]
    pub fn number_nodes(&self) -> Option<&NumberNodes> {
        self.number.as_ref()
    }

    /// The node that a put of the value sets: the value, or the index of an enum.
    pub fn value_bit(&self) -> usize {
        self.value_bit
    }

    /// What a node holds.
    #[inline]
    pub fn role(&self, bit: usize) -> Role {
        self.roles.get(bit).copied().unwrap_or(Role::Other)
    }

    /// The nodes to send for an event of these kinds, the same as QSRV2: the value with its time stamp; with the alarm;
    /// the metadata that can change.
    #[inline]
    pub fn marks(&self, mask: EventMask) -> &BitSet {
        &self.marks[combination(mask)]
    }

    /// The nodes of a complete reading, as far as it consists of these kinds: the result of a get, or the first update
    /// of a subscription to these kinds. It always contains the metadata.
    #[inline]
    pub fn whole(&self, mask: EventMask) -> &BitSet {
        &self.whole[combination(mask)]
    }

    /// Whether a set of changed nodes contains metadata.
    pub fn has_meta(&self, changed: &BitSet) -> bool {
        self.kind.covered(changed).any(|bits| self.meta.next_from(bits.start).is_some_and(|bit| bit < bits.end))
    }

    /// The part of a reading for a node; `None` if the node has no role or the reading has no metadata.
    #[inline]
    pub fn part<'r>(&self, role: Role, reading: &'r Reading) -> Option<Part<'r>> {
        Some(match role {
            Role::Value => Part::Value(&reading.value),
            Role::Index => Part::Integer(index_of(&reading.value)),
            Role::Severity => Part::Integer(reading.alarm.severity.code().into()),
            Role::Status => Part::Integer(class_of(reading.alarm.status)),
            Role::Message => Part::Text(message_of(reading)),
            Role::Seconds => Part::Integer(reading.time.unix_s),
            Role::Nanoseconds => Part::Integer((reading.time.nanos & !self.tag_mask).into()),
            Role::UserTag if self.tag_mask != 0 => Part::Integer((reading.time.nanos & self.tag_mask).into()),
            Role::UserTag => Part::Integer(reading.user_tag.into()),
            Role::FormChoices => Part::Forms(&DisplayForm::NAMES),
            _ => return meta_part(role, reading.meta.as_deref()?),
        })
    }

    /// Stores the parts of a reading that an event of these kinds changes, and marks them; with metadata, all of it.
    pub fn write(&self, reading: &Reading, mask: EventMask, to: &mut Structure) -> Result<(), StructureError> {
        let bits = if mask.meets(EventMask::PROPERTY) { self.whole(mask) } else { self.marks(mask) };
        for bit in bits.iter() {
            let Some(part) = self.part(self.role(bit), reading) else { continue };
            let value = match (part, &self.kind.nodes()[bit].kind) {
                (Part::Value(value), _) => value.clone(),
                (Part::Text(text), _) => Value::Scalar(Scalar::Text(Text::from_bytes(text))),
                (Part::Texts(texts), _) => texts.to_vec().into(),
                (Part::Forms(names), _) => names.iter().map(|&name| name.into()).collect::<Vec<Text>>().into(),
                (part, NodeKind::Scalar(kind)) => part.number(*kind).map_or(Value::from(0), Value::Scalar),
                _ => continue,
            };
            to.set_value(bit, value)?;
        }
        Ok(())
    }

    /// The reading in a structure of this type, without metadata.
    pub fn reading(&self, from: &Structure) -> Reading {
        let mut reading = Reading::bare(Value::from(0));
        self.store_all(from, &self.marks[2], &mut reading);
        reading
    }

    /// The reading in what a server has sent, which is marked as changed, with the metadata that is among it. Other parts
    /// are as in [`Reading::bare`], and the value is 0 or empty.
    pub fn received(&self, from: &Structure) -> Reading {
        let mut reading = Reading::bare(Value::from(0));
        let mut bits: BitSet = self.kind.covered(from.changed()).flatten().collect();
        bits.insert(self.value_bit);
        self.store_all(from, &bits, &mut reading);
        reading
    }

    /// The metadata in a structure of this type.
    pub fn meta(&self, from: &Structure) -> Meta {
        let mut reading = Reading::bare(Value::from(0));
        self.store_all(from, &self.meta, &mut reading);
        reading.meta.map(Arc::unwrap_or_clone).unwrap_or_default()
    }

    fn store_all(&self, from: &Structure, bits: &BitSet, into: &mut Reading) {
        for bit in bits.iter() {
            if let Some(value) = from.value(bit) {
                self.store(bit, value.clone(), into);
            }
        }
    }

    /// Stores the value of a node in a reading. The nodes of an alarm must be stored in ascending order, because the
    /// name of the reason is more precise than its class.
    #[inline]
    pub fn store(&self, bit: usize, value: Value, into: &mut Reading) {
        store_part(self.role(bit), value, into);
    }
}

/// Stores the part of a reading that has this role.
#[inline]
pub(crate) fn store_part(role: Role, value: Value, into: &mut Reading) {
    match role {
        Role::Other => {}
        Role::Value => into.value = value,
        Role::Index => {
            let index = u16::try_from(integer(&value)).unwrap_or(u16::MAX);
            into.value = Value::Scalar(Scalar::Enum(index));
        }
        Role::Seconds => into.time.unix_s = integer(&value),
        Role::Nanoseconds => into.time.nanos = u32::try_from(integer(&value)).unwrap_or(0),
        Role::UserTag => into.user_tag = integer(&value) as i32,
        Role::Severity => into.alarm.severity = severity_of(integer(&value)),
        Role::Status => into.alarm.status = status_of(integer(&value), into.alarm.severity),
        Role::Message => match text(&value) {
            Some(message) => store_message(message, into),
            None => into.message = None,
        },
        role => store_meta(role, &value, Arc::make_mut(into.meta.get_or_insert_default())),
    }
}

/// The index of a combination of event kinds.
#[inline]
fn combination(mask: EventMask) -> usize {
    usize::from(mask.meets(EventMask::VALUE | EventMask::LOG))
        | usize::from(mask.meets(EventMask::ALARM)) << 1
        | usize::from(mask.meets(EventMask::PROPERTY)) << 2
}

#[cold]
fn store_meta(role: Role, value: &Value, meta: &mut Meta) {
    let number = || value.to_f64().unwrap_or(0.0);
    match role {
        Role::Choices => {
            if let Value::Array(Array::Text(texts)) = value {
                meta.labels = texts.to_vec();
            }
        }
        Role::Description => meta.description = text(value).unwrap_or_default(),
        Role::Units => meta.units = text(value).unwrap_or_default(),
        Role::Precision => meta.precision = integer(value) as i16,
        Role::Format => meta.precision = text(value).map_or(0, |format| digits_of(&format)),
        Role::Form => meta.form = DisplayForm::from_code(integer(value)),
        Role::DisplayLow => meta.display.low = number(),
        Role::DisplayHigh => meta.display.high = number(),
        Role::ControlLow => meta.control.low = number(),
        Role::ControlHigh => meta.control.high = number(),
        Role::AlarmLow => meta.alarm.low = number(),
        Role::AlarmHigh => meta.alarm.high = number(),
        Role::WarningLow => meta.warning.low = number(),
        Role::WarningHigh => meta.warning.high = number(),
        _ => {}
    }
}

/// Whether a node of this kind can hold a part of a reading.
fn holds(kind: &NodeKind, role: Role) -> bool {
    match role {
        Role::Value => matches!(kind, NodeKind::Scalar(_) | NodeKind::BoundedText(_) | NodeKind::Array { .. }),
        Role::Choices | Role::FormChoices => matches!(kind, NodeKind::Array { kind: Kind::Text, .. }),
        Role::Message | Role::Description | Role::Units | Role::Format => {
            matches!(kind, NodeKind::Scalar(Kind::Text) | NodeKind::BoundedText(_))
        }
        _ => matches!(kind, NodeKind::Scalar(kind) if *kind != Kind::Text),
    }
}

/// The parts that change with every update.
fn is_current(role: Role) -> bool {
    matches!(role, Role::Value | Role::Index | Role::Seconds | Role::Nanoseconds | Role::UserTag)
}

/// The parts of the metadata.
fn is_meta(role: Role) -> bool {
    !is_current(role) && !matches!(role, Role::Other | Role::Severity | Role::Status | Role::Message)
}

/// The parts of the metadata that a value with this type usually has.
fn usual_parts(value: &NodeKind) -> MetaParts {
    match value {
        NodeKind::Array { kind, .. } => MetaParts::of(*kind, true),
        NodeKind::Scalar(kind) => MetaParts::of(*kind, false),
        _ => MetaParts::of(Kind::Text, false),
    }
}

/// Whether QSRV2 sends this part of the metadata of a value that has these parts.
fn is_served(role: Role, parts: MetaParts) -> bool {
    let needed = match role {
        Role::Format => return false,
        Role::Precision => MetaParts::PRECISION,
        Role::Units => MetaParts::UNITS,
        Role::DisplayLow | Role::DisplayHigh => MetaParts::DISPLAY,
        Role::ControlLow | Role::ControlHigh => MetaParts::CONTROL,
        Role::AlarmLow | Role::AlarmHigh | Role::WarningLow | Role::WarningHigh => MetaParts::ALARM,
        Role::Choices => MetaParts::CHOICES,
        Role::Form => MetaParts::FORM,
        _ => return true,
    };
    parts.contains(needed)
}

fn meta_part(role: Role, meta: &Meta) -> Option<Part<'_>> {
    Some(match role {
        Role::Choices => Part::Texts(&meta.labels),
        Role::Description => Part::Text(meta.description.as_bytes()),
        Role::Units => Part::Text(meta.units.as_bytes()),
        Role::Precision => Part::Integer(meta.precision.into()),
        Role::Form => Part::Integer(meta.form.code().into()),
        Role::DisplayLow => Part::Number(meta.display.low),
        Role::DisplayHigh => Part::Number(meta.display.high),
        Role::ControlLow => Part::Number(meta.control.low),
        Role::ControlHigh => Part::Number(meta.control.high),
        Role::AlarmLow => Part::Number(meta.alarm.low),
        Role::AlarmHigh => Part::Number(meta.alarm.high),
        Role::WarningLow => Part::Number(meta.warning.low),
        Role::WarningHigh => Part::Number(meta.warning.high),
        _ => return None,
    })
}

impl Part<'_> {
    /// An integer or limit as an element of `kind`: the nearest one if it is out of range. NaN, for a limit that is not
    /// set, becomes 0 in integers. `None` if the part is not a number. [`NormativeLayout`] has an example.
    #[inline]
    pub fn number(self, kind: Kind) -> Option<Scalar> {
        match (self, kind) {
            (Part::Number(number), Kind::F64) => Some(Scalar::F64(number)),
            (Part::Number(number), Kind::F32) => Some(Scalar::F32(number as f32)),
            (Part::Number(number), Kind::U64) => Some(Scalar::U64(number as u64)),
            (Part::Number(number), kind) => Some(nearest(number as i64, kind)),
            (Part::Integer(number), kind) => Some(nearest(number, kind)),
            _ => None,
        }
    }
}

#[inline]
fn nearest(number: i64, kind: Kind) -> Scalar {
    match kind {
        Kind::Bool => Scalar::Bool(number != 0),
        Kind::I8 => Scalar::I8(number.clamp(i8::MIN.into(), i8::MAX.into()) as i8),
        Kind::U8 => Scalar::U8(number.clamp(0, u8::MAX.into()) as u8),
        Kind::I16 => Scalar::I16(number.clamp(i16::MIN.into(), i16::MAX.into()) as i16),
        Kind::U16 => Scalar::U16(number.clamp(0, u16::MAX.into()) as u16),
        Kind::Enum => Scalar::Enum(number.clamp(0, u16::MAX.into()) as u16),
        Kind::I32 => Scalar::I32(number.clamp(i32::MIN.into(), i32::MAX.into()) as i32),
        Kind::U32 => Scalar::U32(number.clamp(0, u32::MAX.into()) as u32),
        Kind::I64 => Scalar::I64(number),
        Kind::U64 => Scalar::U64(number.max(0).cast_unsigned()),
        Kind::F32 => Scalar::F32(number as f32),
        Kind::F64 => Scalar::F64(number as f64),
        Kind::Text => Scalar::Text(number.to_string().into()),
    }
}

fn index_of(value: &Value) -> i64 {
    match value {
        Value::Scalar(Scalar::Enum(index)) => (*index).into(),
        value => integer(value),
    }
}

/// The first element as an integer; 0 for a text.
fn integer(value: &Value) -> i64 {
    match value {
        Value::Scalar(Scalar::I32(number)) => (*number).into(),
        Value::Scalar(Scalar::I64(number)) => *number,
        Value::Scalar(Scalar::U64(number)) => *number as i64,
        value => value.to_f64().map_or(0, |number| number as i64),
    }
}

/// A text; `None` if it is empty.
fn text(value: &Value) -> Option<Text> {
    match value {
        Value::Scalar(Scalar::Text(text)) if !text.is_empty() => Some(text.clone()),
        _ => None,
    }
}

/// The digits after the point in a format such as `%5.3f`.
fn digits_of(format: &Text) -> i16 {
    let format = format.to_str();
    let digits = format.split_once('.').map_or("", |(_, digits)| digits);
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Severity 4, UNDEFINED, has no equivalent in records.
fn severity_of(code: i64) -> Severity {
    Severity::from_code(u16::try_from(code).unwrap_or(u16::MAX))
}

/// The classes of alarm reasons, with the reasons of records in each, the same as in QSRV2. The first reason of a class
/// stands for the class if the peer sends no name.
///
/// Source: pvxs 1.5.3, `ioc/iocsource.cpp`, and the specification of the normative types, `alarm_t`.
const CLASSES: [(i64, &[Status]); 5] = [
    (0, &[Status::NO_ALARM]),
    (
        1,
        &[
            Status::STATE,
            Status::READ,
            Status::WRITE,
            Status::HIHI,
            Status::HIGH,
            Status::LOLO,
            Status::LOW,
            Status::COS,
            Status::HW_LIMIT,
        ],
    ),
    (2, &[Status::COMM, Status::TIMEOUT, Status::UDF]),
    (3, &[Status::SOFT, Status::CALC, Status::SCAN, Status::LINK, Status::BAD_SUB]),
    (4, &[Status::DISABLE, Status::SIMM, Status::READ_ACCESS, Status::WRITE_ACCESS]),
];

/// The class of reasons that records do not have.
const CLASS_UNDEFINED: i64 = 6;

fn class_of(status: Status) -> i64 {
    let class = CLASSES.iter().find(|(_, statuses)| statuses.contains(&status));
    class.map_or(CLASS_UNDEFINED, |(class, _)| *class)
}

/// The text of an alarm: its own, or the name of its status; empty without an alarm.
fn message_of(reading: &Reading) -> &[u8] {
    match &reading.message {
        Some(message) => message.as_bytes(),
        None if reading.alarm.status == Status::NO_ALARM => b"",
        None => Status::NAMES.get(usize::from(reading.alarm.status.0)).map_or(b"", |name| name.as_bytes()),
    }
}

/// The first reason of a class.
fn status_of(class: i64, severity: Severity) -> Status {
    let first = CLASSES.iter().find(|(known, _)| *known == class).and_then(|(_, statuses)| statuses.first());
    match first {
        Some(status) => *status,
        None if severity == Severity::None => Status::NO_ALARM,
        None => Status::UDF,
    }
}

/// Stores the text of an alarm; the name of a reason is stored as the reason.
fn store_message(message: Text, into: &mut Reading) {
    match Status::NAMES.iter().position(|name| name.as_bytes() == message.as_bytes()) {
        Some(code) => {
            into.alarm.status = Status(code as u16);
            into.message = None;
        }
        None => into.message = Some(Arc::new(message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Alarm, Limits, StructureBuilder, TimeStamp, normative_type};

    fn layout(kind: Kind, is_array: bool) -> NormativeLayout {
        NormativeLayout::of(Arc::new(normative_type(kind, is_array))).unwrap()
    }

    fn sample(value: Value) -> Reading {
        let limits = |low, high| Limits { low, high };
        Reading {
            alarm: Alarm { severity: Severity::Major, status: Status::HIHI },
            time: TimeStamp { unix_s: 1_800_000_000, nanos: 7 },
            user_tag: 42,
            meta: Some(Arc::new(Meta {
                description: "a pressure".into(),
                form: DisplayForm::Exponential,
                units: "Pa".into(),
                precision: 3,
                display: limits(-10.0, 10.0),
                control: limits(-7.0, 7.0),
                alarm: limits(-9.0, 9.0),
                warning: limits(-8.0, 8.0),
                ..Meta::default()
            })),
            ..Reading::bare(value)
        }
    }

    const EVERYTHING: EventMask = EventMask(15);

    #[test]
    fn a_reading_round_trips_through_its_normative_type() {
        for value in [Value::from(1.5), Value::from(-3_i32), Value::from(200_u8), Value::from(1_u64 << 63)] {
            let layout = layout(value.kind(), false);
            let reading = sample(value.clone());
            let mut structure = Structure::new(layout.kind().clone());

            layout.write(&reading, EVERYTHING, &mut structure).unwrap();
            let again = layout.reading(&structure);

            assert_eq!(Reading { meta: None, ..reading.clone() }, again);
            if value.kind() == Kind::F64 {
                assert_eq!(reading.meta.as_deref(), Some(&layout.meta(&structure)));
            }
        }
    }

    #[test]
    fn what_was_not_received_is_as_in_a_bare_reading() {
        let layout = layout(Kind::F64, false);
        let reading = sample(1.5.into());
        let mut structure = Structure::new(layout.kind().clone());
        assert_eq!(layout.received(&structure), Reading::bare(0.0.into()));

        layout.write(&reading, EVERYTHING, &mut structure).unwrap();
        assert_eq!(layout.received(&structure), reading);
        structure.mark_only([2].into_iter().collect());
        assert_eq!(layout.received(&structure), Reading { alarm: reading.alarm, ..Reading::bare(1.5.into()) });
        structure.mark_only([0].into_iter().collect());
        assert_eq!(layout.received(&structure).time, reading.time);
    }

    #[test]
    fn an_enum_round_trips_with_its_labels() {
        let layout = layout(Kind::Enum, false);
        let labels: Vec<Text> = vec!["OFF".into(), "ON".into()];
        let meta = Meta { labels, description: "a valve".into(), ..Meta::default() };
        let reading = Reading { meta: Some(meta.clone().into()), ..Reading::bare(Value::Scalar(Scalar::Enum(1))) };
        let mut structure = Structure::new(layout.kind().clone());

        layout.write(&reading, EVERYTHING, &mut structure).unwrap();

        assert_eq!(structure.get("value.index"), Some(&1_i32.into()));
        assert_eq!(layout.reading(&structure), Reading { meta: None, ..reading });
        assert_eq!(layout.meta(&structure), meta);
    }

    #[test]
    fn an_event_marks_the_same_nodes_as_qsrv2() {
        let paths = |layout: &NormativeLayout, mask| -> Vec<usize> { layout.marks(mask).iter().collect() };
        let number = layout(Kind::F64, false);

        assert_eq!(paths(&number, EventMask::VALUE), [1, 7, 8, 9]);
        assert_eq!(paths(&number, EventMask::LOG), [1, 7, 8, 9]);
        assert_eq!(paths(&number, EventMask::ALARM), [1, 3, 4, 5, 7, 8, 9]);
        let all = [1, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15, 17, 18, 20, 21, 25, 26, 27, 28];
        assert_eq!(number.whole(EVERYTHING).iter().collect::<Vec<_>>(), all);
        let without_alarm = [1, 7, 8, 9, 11, 12, 13, 14, 15, 17, 18, 20, 21, 25, 26, 27, 28];
        assert_eq!(number.whole(EventMask::LOG).iter().collect::<Vec<_>>(), without_alarm);
        assert_eq!(paths(&number, EventMask::PROPERTY), [11, 12, 13, 14, 15, 20, 21, 25, 26, 27, 28], "no form");
        assert!(!paths(&layout(Kind::I32, false), EVERYTHING).contains(&15), "integers have no precision");
        assert_eq!(paths(&layout(Kind::Text, false), EventMask::PROPERTY), [11], "only the description");
        assert_eq!(layout(Kind::F64, true).marks(EventMask::PROPERTY).iter().last(), Some(21), "no alarm limits");
    }

    #[test]
    fn only_metadata_that_the_source_has_is_marked() {
        let with = |parts| {
            let kind = Arc::new(normative_type(Kind::F64, false));
            let layout = NormativeLayout::with_parts(kind, Some(parts)).unwrap();
            layout.marks(EventMask::PROPERTY).iter().collect::<Vec<_>>()
        };

        assert_eq!(with(MetaParts(0)), [13], "the description");
        assert_eq!(with(MetaParts::UNITS.with(MetaParts::CONTROL)), [13, 14, 20, 21]);
        assert_eq!(with(MetaParts::of(Kind::I32, true)), [11, 12, 13, 14, 20, 21]);
    }

    #[test]
    fn the_lowest_bits_of_the_time_can_be_the_user_tag() {
        let time = TimeStamp { unix_s: 1, nanos: 0x1234_5678 };
        let reading = Reading { time, user_tag: 42, ..Reading::bare(1.5.into()) };
        let parts = |bits| {
            let layout = layout(Kind::F64, false).with_tag_bits(bits);
            [Role::Nanoseconds, Role::UserTag].map(|role| layout.part(role, &reading))
        };

        assert_eq!(parts(0), [0x1234_5678, 42].map(|number| Some(Part::Integer(number))));
        assert_eq!(parts(12), [0x1234_5000, 0x678].map(|number| Some(Part::Integer(number))));
        assert_eq!(parts(32), [0, 0x1234_5678].map(|number| Some(Part::Integer(number))));
    }

    #[test]
    fn a_limit_that_is_not_set_is_0_in_integers() {
        let layout = layout(Kind::I32, false);
        let meta = Meta { alarm: Limits { low: f64::NAN, high: 1e300 }, ..Meta::default() };
        let reading = Reading { meta: Some(meta.into()), ..Reading::bare(1.into()) };
        let mut structure = Structure::new(layout.kind().clone());

        layout.write(&reading, EventMask::PROPERTY, &mut structure).unwrap();

        assert_eq!(structure.get("valueAlarm.lowAlarmLimit"), Some(&0_i32.into()));
        assert_eq!(structure.get("valueAlarm.highAlarmLimit"), Some(&i32::MAX.into()));
    }

    #[test]
    fn a_number_out_of_range_of_its_node_becomes_the_nearest() {
        assert_eq!(Part::Integer(-1).number(Kind::U8), Some(Scalar::U8(0)));
        assert_eq!(Part::Integer(i64::MAX).number(Kind::I16), Some(Scalar::I16(i16::MAX)));
        assert_eq!(Part::Integer(2).number(Kind::Bool), Some(Scalar::Bool(true)));
        assert_eq!(Part::Integer(-1).number(Kind::U64), Some(Scalar::U64(0)));
        assert_eq!(Part::Number(1e300).number(Kind::I8), Some(Scalar::I8(i8::MAX)));
        assert_eq!(Part::Number(1.9e19).number(Kind::U64), Some(Scalar::U64(u64::MAX)));
        assert_eq!(Part::Number(-2.5).number(Kind::F32), Some(Scalar::F32(-2.5)));
        assert_eq!(Part::Text(b"1").number(Kind::I8), None);
    }

    #[test]
    fn a_type_of_another_program_may_lack_members_and_have_other_kinds() {
        let mut build = StructureBuilder::new("");
        build.scalar("value", Kind::I16).open("alarm", "").scalar("severity", Kind::U8).close();
        build.open("display", "display_t").scalar("format", Kind::Text).scalar("units", Kind::Text).close();
        let layout = NormativeLayout::of(Arc::new(build.finish())).unwrap();
        let mut structure = Structure::new(layout.kind().clone());
        structure.set("value", 5).unwrap();
        structure.set("alarm.severity", 4).unwrap();
        structure.set("display.format", "%7.3f").unwrap();

        let reading = layout.reading(&structure);

        assert_eq!((reading.value, reading.alarm.severity), (5_i16.into(), Severity::Invalid));
        assert_eq!(layout.meta(&structure).precision, 3);
        assert!(layout.has_meta(structure.changed()));
        assert!(!layout.has_meta(&[1, 3].into_iter().collect()));
        assert!(layout.has_meta(&[0].into_iter().collect()));
        let mut build = StructureBuilder::new("");
        build.open("value", "").scalar("x", Kind::F64);
        assert!(NormativeLayout::of(Arc::new(build.finish())).is_none(), "a table is not a reading");
    }

    #[test]
    fn an_alarm_with_its_own_message_keeps_it() {
        let layout = layout(Kind::F64, false);
        let message = |class: i32, text: &str| {
            let mut structure = Structure::new(layout.kind().clone());
            structure.set("alarm.severity", 2).unwrap();
            structure.set("alarm.status", class).unwrap();
            structure.set("alarm.message", text).unwrap();
            layout.reading(&structure)
        };

        let named = message(1, "LOLO");
        assert_eq!((named.alarm.status, named.message), (Status::LOLO, None));
        let other = message(3, "the pump is dry");
        assert_eq!(other.alarm.status, Status::SOFT);
        assert_eq!(other.message, Some(Arc::new("the pump is dry".into())));
        assert_eq!(message(7, "").alarm.status, Status::UDF);
    }
}
