//! The text of links over pvAccess: `{pva:"name"}` and `{pva:{pv:"name",..}}`.
//!
//! Source: pvxs 1.5.3, documentation of pva links.

use std::sync::Arc;

use crate::external_pv::{PvaLink, PvaProcessing};
use crate::json::{Json, JsonMember};
use crate::limit::{PVA_ORDER_MAX, PVA_QUEUE_SIZE_MAX};
use crate::link::{Inherit, LinkFault, LinkKind, Modifiers, Trigger};

/// The options of a link over pvAccess, in the order of the documentation.
const OPTIONS: [&str; 13] =
    ["pv", "field", "local", "Q", "pipeline", "proc", "sevr", "time", "monorder", "retry", "always", "defer", "atomic"];

/// The queue size if the link sets none, as in pvxs.
const QUEUE_SIZE: u32 = 4;

/// A parsed link over pvAccess.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ParsedPvaLink {
    pub(crate) link: Arc<PvaLink>,
    /// `sevr`, and `CP` or `CPP` of an input.
    pub(crate) modifiers: Modifiers,
    /// Options that have no effect on a link of this kind, as the text sets them.
    pub(crate) ineffective: Vec<String>,
}

/// The value of `proc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Proc {
    #[default]
    Unset,
    Never,
    Always,
    OnChange,
    OnChangeIfPassive,
}

/// The options before the kind of link is considered.
#[derive(Debug)]
struct Options {
    link: PvaLink,
    proc: Proc,
    inherit: Inherit,
}

/// The member of a JSON link that makes it a link over pvAccess.
pub(crate) fn member(json: &Json) -> Option<&JsonMember> {
    match json {
        Json::Map(members) => members.first().filter(|member| members.len() == 1 && member.name == "pva"),
        _ => None,
    }
}

/// Parses a link; `member` is its only member.
pub(crate) fn parse(member: &JsonMember, link_kind: LinkKind) -> Result<ParsedPvaLink, LinkFault> {
    let link = PvaLink {
        pv: "".into(),
        is_forward: link_kind == LinkKind::Forward,
        field: "".into(),
        is_local: false,
        queue_size: QUEUE_SIZE,
        is_pipelined: false,
        processing: PvaProcessing::ByServer,
        order: 0,
        is_atomic: false,
        retries: false,
        defers: false,
        copies_time: false,
    };
    let mut options = Options { link, proc: Proc::Unset, inherit: Inherit::Not };
    match &member.value {
        Json::Text(name) => options.link.pv = name.as_str().into(),
        Json::Map(members) => {
            for (index, option) in members.iter().enumerate() {
                let fault = |message: String| LinkFault { message, at: option.at };
                if members.iter().take(index).any(|earlier| earlier.name == option.name) {
                    return Err(fault(format!("the option \"{}\" is set twice", option.name)));
                }
                options.set(option).map_err(fault)?;
            }
        }
        _ => return Err(LinkFault { message: "pva needs a name or a map of options".into(), at: member.at }),
    }
    if options.link.pv.is_empty() {
        return Err(LinkFault {
            message: "a pva link needs the option pv with the name of a PV".into(),
            at: member.at,
        });
    }
    options.for_kind(link_kind).map_err(|message| LinkFault { message, at: member.at })
}

impl Options {
    fn set(&mut self, option: &JsonMember) -> Result<(), String> {
        let (name, value) = (option.name.as_str(), &option.value);
        let wrong = |expected: &str| Err(format!("the option \"{name}\" of a pva link must be {expected}"));
        let link = &mut self.link;
        match (name, value) {
            ("pv", Json::Text(pv)) => link.pv = pv.as_str().into(),
            ("pv", _) => return wrong("the name of a PV"),
            ("field", Json::Text(path)) if path.is_empty() || path.split('.').all(|member| !member.is_empty()) => {
                link.field = path.as_str().into();
            }
            ("field", _) => return wrong("the path of a field, such as \"display.units\""),
            ("Q", Json::Whole(size @ 1..=PVA_QUEUE_SIZE_MAX)) => link.queue_size = *size as u32,
            ("Q", _) => return wrong(&format!("a number between 1 and {PVA_QUEUE_SIZE_MAX}")),
            ("monorder", Json::Whole(order)) if (-PVA_ORDER_MAX..=PVA_ORDER_MAX).contains(order) => {
                link.order = *order as i32
            }
            ("monorder", _) => return wrong(&format!("a number between -{PVA_ORDER_MAX} and {PVA_ORDER_MAX}")),
            ("proc", value) => match proc(value) {
                Some(proc) => self.proc = proc,
                None => return wrong("null, true, false, \"PP\", \"NPP\", \"CP\" or \"CPP\""),
            },
            ("sevr", value) => match inherit(value) {
                Some(inherit) => self.inherit = inherit,
                None => return wrong("true, false, \"NMS\", \"MS\", \"MSI\" or \"MSS\""),
            },
            ("local", Json::Null) => link.is_local = false,
            ("local", Json::Bool(is_set)) => link.is_local = *is_set,
            ("pipeline", Json::Bool(is_set)) => link.is_pipelined = *is_set,
            ("time", Json::Bool(is_set)) => link.copies_time = *is_set,
            ("retry", Json::Bool(is_set)) => link.retries = *is_set,
            ("defer", Json::Bool(is_set)) => link.defers = *is_set,
            ("atomic", Json::Bool(is_set)) => link.is_atomic = *is_set,
            // Ignored, as in pvxs.
            ("always", Json::Bool(_)) => {}
            (known, _) if OPTIONS.contains(&known) => return wrong("true or false"),
            _ => return Err(format!("unknown option \"{name}\" of a pva link; there are {}", OPTIONS.join(", "))),
        }
        Ok(())
    }

    /// The link for a field of this kind; the options that have no effect there are listed or, if they contradict the
    /// kind, an error.
    fn for_kind(self, link_kind: LinkKind) -> Result<ParsedPvaLink, String> {
        let Options { mut link, proc, inherit } = self;
        let is_input = matches!(link_kind, LinkKind::In | LinkKind::PlainIn);
        if link_kind == LinkKind::Forward && proc == Proc::Never {
            return Err("proc of a forward link cannot be false or \"NPP\": the link only processes its PV".into());
        }
        if link_kind == LinkKind::Forward && link.defers {
            return Err("a forward link cannot have defer: it writes no value".into());
        }
        let of_outputs = [("proc", proc == Proc::Always), ("retry", link.retries), ("defer", link.defers)];
        let of_inputs = [
            ("sevr", inherit != Inherit::Not),
            ("time", link.copies_time),
            ("monorder", link.order != 0),
            ("atomic", link.is_atomic),
            ("CP", proc == Proc::OnChange),
            ("CPP", proc == Proc::OnChangeIfPassive),
        ];
        let others: &[(&str, bool)] = if is_input { &of_outputs } else { &of_inputs };
        let ineffective = others.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| (*name).to_owned()).collect();
        if is_input {
            let trigger = match proc {
                Proc::OnChange => Trigger::Change,
                Proc::OnChangeIfPassive => Trigger::ChangeIfPassive,
                Proc::Unset | Proc::Never | Proc::Always => Trigger::None,
            };
            (link.retries, link.defers) = (false, false);
            let modifiers = Modifiers { trigger, inherit, is_time: false };
            return Ok(ParsedPvaLink { link: Arc::new(link), modifiers, ineffective });
        }
        link.processing = match proc {
            Proc::Unset => PvaProcessing::ByServer,
            Proc::Never => PvaProcessing::Never,
            // As in pvxs, CP and CPP of an output are the same as PP.
            Proc::Always | Proc::OnChange | Proc::OnChangeIfPassive => PvaProcessing::Always,
        };
        Ok(ParsedPvaLink { link: Arc::new(link), modifiers: Modifiers::default(), ineffective })
    }
}

fn proc(value: &Json) -> Option<Proc> {
    Some(match value {
        Json::Null => Proc::Unset,
        Json::Bool(true) => Proc::Always,
        Json::Bool(false) => Proc::Never,
        Json::Text(word) => match word.as_str() {
            "" => Proc::Unset,
            "PP" => Proc::Always,
            "NPP" => Proc::Never,
            "CP" => Proc::OnChange,
            "CPP" => Proc::OnChangeIfPassive,
            _ => return None,
        },
        _ => return None,
    })
}

fn inherit(value: &Json) -> Option<Inherit> {
    Some(match value {
        Json::Null | Json::Bool(false) => Inherit::Not,
        Json::Bool(true) => Inherit::Severity,
        Json::Text(word) => match word.as_str() {
            "NMS" => Inherit::Not,
            "MS" => Inherit::Severity,
            "MSI" => Inherit::Invalid,
            "MSS" => Inherit::Status,
            _ => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{ParsedLink, parse as parse_link};

    fn parsed(text: &str, link_kind: LinkKind) -> ParsedPvaLink {
        match parse_link(text, link_kind) {
            ParsedLink::Pva(parsed) => parsed,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn fault(text: &str, link_kind: LinkKind) -> LinkFault {
        match parse_link(text, link_kind) {
            ParsedLink::Invalid(fault) => fault,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_name_alone_is_a_link_with_the_default_options() {
        let short = parsed("{pva:\"x:y\"}", LinkKind::In);

        assert_eq!(short, parsed("{pva:{pv:'x:y'}}", LinkKind::In));
        let PvaLink { pv, field, queue_size, processing, .. } = &*short.link;
        assert_eq!((pv.to_str().as_ref(), field.is_empty(), *queue_size), ("x:y", true, 4));
        assert_eq!((*processing, short.modifiers), (PvaProcessing::ByServer, Modifiers::default()));
        let documented = "{pva:{pv:'x:y',field:'',local:false,Q:4,pipeline:false,proc:null,sevr:false,time:false,\
                          monorder:0,retry:false,always:false,defer:false,atomic:false}}";
        assert_eq!(short, parsed(documented, LinkKind::In));
    }

    #[test]
    fn every_option_of_an_input_is_parsed() {
        let text = "{pva:{pv:'x',field:'a.b',local:true,Q:9,pipeline:true,proc:'CP',sevr:'MSI',time:true,monorder:-3,\
                    atomic:true}}";
        let ParsedPvaLink { link, modifiers, ineffective } = parsed(text, LinkKind::In);

        let expected = PvaLink {
            pv: "x".into(),
            is_forward: false,
            field: "a.b".into(),
            is_local: true,
            queue_size: 9,
            is_pipelined: true,
            processing: PvaProcessing::ByServer,
            order: -3,
            is_atomic: true,
            retries: false,
            defers: false,
            copies_time: true,
        };
        assert_eq!((&*link, ineffective), (&expected, Vec::new()));
        assert_eq!(modifiers, Modifiers { trigger: Trigger::Change, inherit: Inherit::Invalid, is_time: false });
    }

    #[test]
    fn proc_of_an_output_decides_whether_a_put_processes() {
        for (value, expected) in [
            ("null", PvaProcessing::ByServer),
            ("''", PvaProcessing::ByServer),
            ("true", PvaProcessing::Always),
            ("'PP'", PvaProcessing::Always),
            ("'CP'", PvaProcessing::Always),
            ("'CPP'", PvaProcessing::Always),
            ("false", PvaProcessing::Never),
            ("'NPP'", PvaProcessing::Never),
        ] {
            let parsed = parsed(&format!("{{pva:{{pv:'x',proc:{value},retry:true,defer:true}}}}"), LinkKind::Out);

            assert_eq!((parsed.link.processing, parsed.modifiers), (expected, Modifiers::default()), "{value}");
            assert!(parsed.link.retries && parsed.link.defers);
        }
    }

    #[test]
    fn sevr_is_a_word_or_whether_the_severity_is_transferred() {
        for (value, expected) in [
            ("null", Inherit::Not),
            ("false", Inherit::Not),
            ("true", Inherit::Severity),
            ("'NMS'", Inherit::Not),
            ("'MS'", Inherit::Severity),
            ("'MSI'", Inherit::Invalid),
            ("'MSS'", Inherit::Status),
        ] {
            let parsed = parsed(&format!("{{pva:{{pv:'x',sevr:{value}}}}}"), LinkKind::In);

            assert_eq!(parsed.modifiers.inherit, expected, "{value}");
        }
    }

    #[test]
    fn options_without_effect_are_listed() {
        let input = parsed("{pva:{pv:'x',proc:true,retry:true,defer:true}}", LinkKind::In);
        let output = parsed("{pva:{pv:'x',proc:'CP',sevr:'MS',time:true,monorder:1,atomic:true}}", LinkKind::Out);

        assert_eq!(input.ineffective, ["proc", "retry", "defer"]);
        assert_eq!(output.ineffective, ["sevr", "time", "monorder", "atomic", "CP"]);
        assert!(!input.link.retries && !input.link.defers);
    }

    #[test]
    fn an_invalid_option_is_reported_with_its_position() {
        let at = |text: &str, link_kind| {
            let LinkFault { message, at } = fault(text, link_kind);
            (message, text.get(at..at + 3).unwrap_or_default().to_owned())
        };
        let input = |options: &str| at(&format!("{{pva:{{pv:'x',{options}}}}}"), LinkKind::In);
        let wrong = |name: &str, expected: &str| format!("the option \"{name}\" of a pva link must be {expected}");

        assert_eq!(input("Q:0"), (wrong("Q", "a number between 1 and 65535"), "Q:0".into()));
        assert_eq!(input("Q:1.5").0, wrong("Q", "a number between 1 and 65535"));
        assert_eq!(input("monorder:2000").0, wrong("monorder", "a number between -1024 and 1024"));
        assert_eq!(input("monorder:-9223372036854775808").0, wrong("monorder", "a number between -1024 and 1024"));
        assert_eq!(input("time:1"), (wrong("time", "true or false"), "tim".into()));
        assert_eq!(input("always:'x'").0, wrong("always", "true or false"));
        assert_eq!(input("field:'a..b'").0, wrong("field", "the path of a field, such as \"display.units\""));
        assert_eq!(input("proc:'cp'").0, wrong("proc", "null, true, false, \"PP\", \"NPP\", \"CP\" or \"CPP\""));
        assert_eq!(input("sevr:3").0, wrong("sevr", "true, false, \"NMS\", \"MS\", \"MSI\" or \"MSS\""));
        assert_eq!(input("pv:'y'"), ("the option \"pv\" is set twice".into(), "pv:".into()));
        let (unknown, place) = input("feild:'a'");
        assert!(unknown.starts_with("unknown option \"feild\" of a pva link; there are pv, field, local"), "{unknown}");
        assert_eq!(place, "fei");
        assert_eq!(at("{pva:5}", LinkKind::In), ("pva needs a name or a map of options".into(), "pva".into()));
        let nameless = "a pva link needs the option pv with the name of a PV";
        assert_eq!(at("{pva:{field:'a'}}", LinkKind::In).0, nameless);
        assert_eq!(at("{pva:''}", LinkKind::In).0, nameless);
    }

    #[test]
    fn a_forward_link_can_neither_be_deferred_nor_refrain_from_processing() {
        assert_eq!(parsed("{pva:'x'}", LinkKind::Forward).link.pv, "x".into());
        let never = "proc of a forward link cannot be false or \"NPP\": the link only processes its PV";
        assert_eq!(fault("{pva:{pv:'x',proc:'NPP'}}", LinkKind::Forward).message, never);
        let deferred = "a forward link cannot have defer: it writes no value";
        assert_eq!(fault("{pva:{pv:'x',defer:true}}", LinkKind::Forward).message, deferred);
        let constant = "a forward link needs the name of a record, or {pva:\"name\"}";
        assert_eq!(fault("{const:1}", LinkKind::Forward).message, constant);
    }
}
