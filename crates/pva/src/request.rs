//! The pvRequest: the fields and options that a client selects when it starts an operation.
//!
//! Two grammars are in use, and this module accepts both: that of pvxs (`field(a,b.c)record[k=v]`), and that of pvData
//! (`putField(a)getField(a,b)`, `a{b,c}`, options of fields `a[k=v]`, and `a,b` without `field`).
//!
//! Sources: pvxs 1.5.3, `clientreq.cpp`; pvDataCPP 8, `createRequest.cpp`.

use std::fmt;

use fodo_data::{BitSet, Kind, Node, NodeKind, Structure, StructureBuilder, StructureType, Text};

use crate::limit;

/// The selections of a request, in the order of the wire.
const GROUPS: [&str; 3] = ["field", "putField", "getField"];

/// The member that contains options.
const OPTIONS: &str = "_options";

/// A parsed pvRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PvRequest {
    /// The selections: `field`, for put-get also `putField` and `getField`. A selection without members is of all
    /// fields.
    pub groups: Vec<RequestedField>,
    /// The options of the whole request, such as `queueSize`, with their values as text.
    pub options: Vec<RequestOption>,
}

/// A selected field, or the root of a selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedField {
    /// The name within its structure.
    pub name: Text,
    /// Options of this field.
    pub options: Vec<RequestOption>,
    /// The selected members; none for all of them.
    pub members: Vec<RequestedField>,
}

/// An option with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestOption {
    /// The name.
    pub name: Text,
    /// The value as text, whatever its type was.
    pub value: Text,
}

impl fmt::Display for PvRequest {
    /// As a text that [`PvRequest::parse`] accepts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in &self.groups {
            write!(f, "{}({})", group.name, List(&group.members))?;
        }
        if self.options.is_empty() { Ok(()) } else { write!(f, "record[{}]", List(&self.options)) }
    }
}

impl fmt::Display for RequestedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)?;
        if !self.options.is_empty() {
            write!(f, "[{}]", List(&self.options))?;
        }
        if self.members.is_empty() { Ok(()) } else { write!(f, "{{{}}}", List(&self.members)) }
    }
}

impl fmt::Display for RequestOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// Prints its elements with commas between them.
struct List<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut elements = self.0.iter();
        elements.next().map_or(Ok(()), |first| first.fmt(f))?;
        elements.try_for_each(|element| write!(f, ",{element}"))
    }
}

/// Where a text is not a pvRequest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSyntax {
    /// The offset in bytes.
    pub offset: usize,
    /// What was expected there.
    pub expected: &'static str,
}

impl fmt::Display for RequestSyntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid pvRequest: expected {} at character {}", self.expected, self.offset + 1)
    }
}

impl std::error::Error for RequestSyntax {}

/// A request selects only fields that the type does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NothingSelected;

impl fmt::Display for NothingSelected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pvRequest selects no field that the type has")
    }
}

impl std::error::Error for NothingSelected {}

impl PvRequest {
    /// Parses a text. The empty text selects everything.
    pub fn parse(text: &str) -> Result<PvRequest, RequestSyntax> {
        let mut parser = Parser { text, offset: 0, depth: 0 };
        if text.len() > limit::REQUEST_TEXT_BYTES {
            return Err(parser.expected("a shorter text"));
        }
        let mut request = PvRequest::default();
        loop {
            while parser.skip(',') {}
            if parser.peek().is_none() {
                return Ok(request);
            }
            parser.item(&mut request)?;
        }
    }

    /// The value of an option of the whole request.
    pub fn option(&self, name: &str) -> Option<&Text> {
        self.options.iter().find(|option| option.name.as_bytes() == name.as_bytes()).map(|option| &option.value)
    }

    /// Sets an option of the whole request.
    pub fn set_option(&mut self, name: &str, value: impl Into<Text>) {
        set_option(&mut self.options, name.into(), value.into());
    }

    /// The selection called `name`, which is created if it does not exist.
    fn group(&mut self, name: &str) -> &mut RequestedField {
        member_of(&mut self.groups, name.into())
    }

    /// The request as it is sent: a structure with the selections as empty structures, and the options as texts. It
    /// contains an empty `field` if there is no selection, because servers expect one.
    pub fn to_structure(&self) -> Structure {
        let mut build = StructureBuilder::new("");
        let mut options = Vec::new();
        if self.groups.is_empty() {
            build.open(GROUPS[0], "").close();
        }
        let groups =
            GROUPS.iter().filter_map(|name| self.groups.iter().find(|group| group.name.as_bytes() == name.as_bytes()));
        groups.for_each(|group| group.add_to(&mut build, &mut options));
        if !self.options.is_empty() {
            build.open("record", "");
            add_options(&self.options, &mut build, &mut options);
            build.close();
        }
        let mut structure = Structure::new(build.finish().into());
        for (bit, value) in options {
            // The node was created as a text.
            let is_set = structure.set_value(bit, fodo_data::Value::Scalar(fodo_data::Scalar::Text(value)));
            debug_assert_eq!(is_set, Ok(()));
        }
        structure.unmark_all();
        structure
    }

    /// The request in a received structure. Members that are not part of a request are ignored.
    pub fn from_structure(structure: &Structure) -> PvRequest {
        let kind = structure.kind();
        let mut request = PvRequest::default();
        for bit in kind.members(0) {
            let name = kind.nodes()[bit].name.to_str();
            if name == "record" {
                request.options =
                    kind.member(bit, OPTIONS.as_bytes()).map_or(Vec::new(), |bit| options(structure, bit));
            } else if GROUPS.contains(&name.as_ref()) && is_structure(kind, bit) {
                request.groups.push(requested(structure, bit));
            }
        }
        request
    }

    /// The nodes of a type that a selection contains, with all of their members; the whole type if the selection is
    /// empty or missing. The bit of a structure of which only some members are selected is not set. Names that the type
    /// does not have are ignored if others remain, the same as by pvxs.
    pub fn selection(&self, group: &str, kind: &StructureType) -> Result<BitSet, NothingSelected> {
        let mut bits = BitSet::new();
        match self.groups.iter().find(|field| field.name.as_bytes() == group.as_bytes()) {
            Some(field) => field.select(kind, 0, &mut bits),
            None => bits.insert_range(0..kind.nodes().len()),
        }
        if bits.is_empty() { Err(NothingSelected) } else { Ok(bits) }
    }
}

impl RequestedField {
    /// Adds this field as a structure; `options` receives the value of each option and its bit.
    fn add_to(&self, build: &mut StructureBuilder, options: &mut Vec<(usize, Text)>) {
        build.open(self.name.clone(), "");
        add_options(&self.options, build, options);
        self.members.iter().for_each(|member| member.add_to(build, options));
        build.close();
    }

    fn select(&self, kind: &StructureType, bit: usize, bits: &mut BitSet) {
        let Node { kind: node, end, .. } = &kind.nodes()[bit];
        // Like pvxs, a request for a part of a value without parts selects the value.
        if self.members.is_empty() || !matches!(node, NodeKind::Structure { .. }) {
            bits.insert_range(bit..*end as usize);
        }
        for field in &self.members {
            if let Some(member) = kind.member(bit, field.name.as_bytes()) {
                field.select(kind, member, bits);
            }
        }
    }
}

fn add_options(options: &[RequestOption], build: &mut StructureBuilder, values: &mut Vec<(usize, Text)>) {
    if options.is_empty() {
        return;
    }
    build.open(OPTIONS, "");
    for option in options {
        values.push((build.n_nodes(), option.value.clone()));
        build.leaf(option.name.clone(), NodeKind::Scalar(Kind::Text));
    }
    build.close();
}

/// The options in the members of a node; values that are not scalars are ignored.
fn options(structure: &Structure, bit: usize) -> Vec<RequestOption> {
    let kind = structure.kind();
    let option = |bit: usize| {
        let value = structure.value(bit)?.first()?.to_text(None);
        Some(RequestOption { name: kind.nodes()[bit].name.clone(), value })
    };
    kind.members(bit).filter_map(option).collect()
}

fn requested(structure: &Structure, bit: usize) -> RequestedField {
    let kind = structure.kind();
    let mut field = RequestedField { name: kind.nodes()[bit].name.clone(), ..RequestedField::default() };
    for member in kind.members(bit) {
        if kind.nodes()[member].name.as_bytes() == OPTIONS.as_bytes() {
            field.options = options(structure, member);
        } else {
            // pvxs and pvData send structures; the type of the member does not matter.
            field.members.push(requested(structure, member));
        }
    }
    field
}

fn is_structure(kind: &StructureType, bit: usize) -> bool {
    matches!(kind.nodes()[bit].kind, NodeKind::Structure { .. })
}

/// The field called `name`, which is added if it does not exist.
fn member_of(fields: &mut Vec<RequestedField>, name: Text) -> &mut RequestedField {
    let index = fields.iter().position(|field| field.name == name).unwrap_or_else(|| {
        fields.push(RequestedField { name, ..RequestedField::default() });
        fields.len() - 1
    });
    &mut fields[index]
}

fn set_option(options: &mut Vec<RequestOption>, name: Text, value: Text) {
    match options.iter_mut().find(|option| option.name == name) {
        Some(option) => option.value = value,
        None => options.push(RequestOption { name, value }),
    }
}

struct Parser<'t> {
    text: &'t str,
    offset: usize,
    depth: u32,
}

impl<'t> Parser<'t> {
    /// One selection, the options, or one field without `field`.
    fn item(&mut self, request: &mut PvRequest) -> Result<(), RequestSyntax> {
        let start = self.offset;
        let name = self.name()?;
        if let Some(group) = GROUPS.iter().find(|group| **group == name)
            && self.skip('(')
        {
            self.list(request.group(group), ')', "`)` or a field")
        } else if name == "record" && self.skip('[') {
            self.options(&mut request.options)
        } else {
            self.offset = start;
            self.field(request.group(GROUPS[0]))
        }
    }

    /// Fields up to a closing character.
    fn list(&mut self, into: &mut RequestedField, close: char, expected: &'static str) -> Result<(), RequestSyntax> {
        self.depth += 1;
        if self.depth > limit::DEPTH_MAX {
            return Err(self.expected("fields that are nested less deeply"));
        }
        loop {
            while self.skip(',') {}
            if self.skip(close) {
                self.depth -= 1;
                return Ok(());
            }
            if self.peek().is_none_or(is_sign) {
                return Err(self.expected(expected));
            }
            self.field(into)?;
        }
    }

    /// `a.b[k=v]{c,d}`: a path whose names may have options, and its members.
    fn field(&mut self, mut into: &mut RequestedField) -> Result<(), RequestSyntax> {
        for _ in 0..limit::DEPTH_MAX {
            into = member_of(&mut into.members, self.name()?.into());
            if self.skip('[') {
                self.options(&mut into.options)?;
            }
            if self.skip('{') {
                return self.list(into, '}', "`}` or a field");
            }
            if !self.skip('.') {
                return Ok(());
            }
        }
        Err(self.expected("a shorter path"))
    }

    /// `k=v,k=v]`
    fn options(&mut self, into: &mut Vec<RequestOption>) -> Result<(), RequestSyntax> {
        loop {
            if self.skip(']') {
                return Ok(());
            }
            let name = self.name()?;
            if !self.skip('=') {
                return Err(self.expected("`=`"));
            }
            let value = self.until(|character| matches!(character, ',' | ']') || character.is_control());
            set_option(into, name.into(), value.trim().into());
            if !self.skip(',') && self.peek() != Some(']') {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    fn name(&mut self) -> Result<&'t str, RequestSyntax> {
        self.skip_blanks();
        let name = self.until(|character| is_sign(character) || character.is_whitespace() || character.is_control());
        if name.is_empty() { Err(self.expected("a name")) } else { Ok(name) }
    }

    fn until(&mut self, is_end: impl Fn(char) -> bool) -> &'t str {
        let rest = self.text.get(self.offset..).unwrap_or_default();
        let (taken, _) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
        self.offset += taken.len();
        taken
    }

    /// The next character that is not blank.
    fn peek(&mut self) -> Option<char> {
        self.skip_blanks();
        self.text.get(self.offset..).and_then(|rest| rest.chars().next())
    }

    fn skip_blanks(&mut self) {
        self.until(|character| !character.is_whitespace());
    }

    fn skip(&mut self, character: char) -> bool {
        let is_next = self.peek() == Some(character);
        if is_next {
            self.offset += character.len_utf8();
        }
        is_next
    }

    fn expected(&self, expected: &'static str) -> RequestSyntax {
        RequestSyntax { offset: self.offset, expected }
    }
}

/// Whether a character has a meaning of its own.
fn is_sign(character: char) -> bool {
    matches!(character, ',' | '.' | '=' | '(' | ')' | '[' | ']' | '{' | '}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The type that a request is sent as, and its options in order.
    fn sent(text: &str) -> String {
        let request = PvRequest::parse(text).unwrap();
        let structure = request.to_structure();
        let normal = |request: &PvRequest| (request.selection_text(), request.options.clone());
        let mut again = PvRequest::from_structure(&structure);
        if request.groups.is_empty() {
            again.groups.clear();
        }
        assert_eq!(PvRequest::parse(&request.to_string()), Ok(request.clone()), "{text}");
        assert_eq!(normal(&again), normal(&request), "{text}");
        let kind = structure.kind();
        let values = (0..kind.nodes().len()).filter_map(|bit| structure.value(bit));
        values.fold(kind.to_string(), |out, value| format!("{out} {}", value.first().unwrap().to_text(None)))
    }

    impl PvRequest {
        fn selection_text(&self) -> String {
            let mut groups = self.groups.clone();
            groups.sort_by_key(|group| GROUPS.iter().position(|name| name.as_bytes() == group.name.as_bytes()));
            format!("{groups:?}")
        }
    }

    #[test]
    fn requests_of_both_grammars_become_the_structure_that_is_sent() {
        for (text, expected) in [
            ("", "{{} field}"),
            ("field()", "{{} field}"),
            ("value", "{{{} value} field}"),
            ("value,alarm", "{{{} value, {} alarm} field}"),
            ("field(value, alarm.severity)", "{{{} value, {{} severity} alarm} field}"),
            ("field(alarm{severity,status},alarm.message)", "{{{{} severity, {} status, {} message} alarm} field}"),
            (
                "record[queueSize=4,pipeline=true]",
                "{{} field, {{Text queueSize, Text pipeline} _options} record} 4 true",
            ),
            ("field(a)record[process=true]", "{{{} a} field, {{Text process} _options} record} true"),
            ("record[process=true]field(a)", "{{{} a} field, {{Text process} _options} record} true"),
            ("a[x=1].b{c,d[y=2]}", "{{{{Text x} _options, {{} c, {{Text y} _options} d} b} a} field} 1 2"),
            ("putField(a)getField(a,b)", "{{{} a} putField, {{} a, {} b} getField}"),
            ("value record[DBE=VALUE|ALARM]", "{{{} value} field, {{Text DBE} _options} record} VALUE|ALARM"),
        ] {
            assert_eq!(sent(text), expected, "{text}");
        }
    }

    #[test]
    fn a_syntax_error_names_its_position() {
        for (text, offset, expected) in [
            ("field(a", 7, "`)` or a field"),
            ("field(a}", 7, "`)` or a field"),
            ("a{b", 3, "`}` or a field"),
            ("a..b", 2, "a name"),
            ("record[a]", 8, "`=`"),
            ("record[a=b", 10, "`,` or `]`"),
            ("record[=b]", 7, "a name"),
            (")", 0, "a name"),
            ("a,\0", 2, "a name"),
            ("record[a=\0]", 9, "`,` or `]`"),
        ] {
            assert_eq!(PvRequest::parse(text), Err(RequestSyntax { offset, expected }), "{text}");
        }
        let error = PvRequest::parse("a..b").unwrap_err().to_string();
        assert_eq!(error, "invalid pvRequest: expected a name at character 3");
        let nested = |depth: usize| PvRequest::parse(&format!("{}b{}", "a{".repeat(depth), "}".repeat(depth))).is_ok();
        assert!(nested(limit::DEPTH_MAX as usize) && !nested(limit::DEPTH_MAX as usize + 1));
        assert!(PvRequest::parse(&"a{".repeat(1000)).is_err());
        assert!(PvRequest::parse(&"a.".repeat(1000)).is_err());
        let longest = "a".repeat(limit::REQUEST_TEXT_BYTES);
        assert!(PvRequest::parse(&longest).is_ok() && PvRequest::parse(&(longest + "a")).is_err());
        assert!(PvRequest::parse(&"a{b},".repeat(1000)).is_ok(), "fields side by side are one level");
    }

    #[test]
    fn a_selection_contains_the_selected_nodes_with_their_members() {
        let kind = fodo_data::normative_type(Kind::F64, false);
        let bits = |text: &str| {
            let selection = PvRequest::parse(text).unwrap().selection("field", &kind);
            selection.map(|bits| bits.iter().collect::<Vec<_>>())
        };

        assert_eq!(bits("value,alarm"), Ok(vec![1, 2, 3, 4, 5]));
        assert_eq!(bits("alarm.severity,timeStamp{userTag}"), Ok(vec![3, 9]));
        assert_eq!(bits("").map(|bits| bits.len()), Ok(34));
        assert_eq!(bits("field()record[a=b]").map(|bits| bits.len()), Ok(34));
        assert_eq!(bits("none,value,alarm.none"), Ok(vec![1]));
        assert_eq!((bits("value.x"), bits("alarm.x")), (Ok(vec![1]), Err(NothingSelected)));
        assert_eq!(bits("none"), Err(NothingSelected));
        assert_eq!(NothingSelected.to_string(), "the pvRequest selects no field that the type has");
    }

    #[test]
    fn members_that_are_no_part_of_a_request_are_ignored() {
        let mut build = StructureBuilder::new("");
        build.scalar("field", Kind::F64).open("other", "").close().open("getField", "").close();

        let request = PvRequest::from_structure(&Structure::new(build.finish().into()));

        assert_eq!(request.to_string(), "getField()");
    }

    #[test]
    fn options_of_any_type_are_read_as_text() {
        let mut build = StructureBuilder::new("");
        build.open("record", "").open("_options", "").scalar("queueSize", Kind::I32).scalar("atomic", Kind::Bool);
        let mut structure = Structure::new(build.finish().into());
        structure.set("record._options.queueSize", 7).unwrap();

        let mut request = PvRequest::from_structure(&structure);

        assert_eq!(request.option("queueSize"), Some(&"7".into()));
        assert_eq!(request.option("atomic"), Some(&"false".into()));
        request.set_option("atomic", "true");
        assert_eq!(request.option("atomic"), Some(&"true".into()));
    }
}
