//! MqttTopic: messages of an MQTT broker in scripts.
//!
//! Each message calls the handlers of `OnMessage` once, in the order of arrival. The object takes a message when the handlers
//! of the last one have been called, so that they find their own message in `Message` and `MessageTopic`. It subscribes again
//! by itself after the connection was lost.

use super::{
    CluObject, Feature, FeatureAccess, ObjectClass, ObjectContext, ObjectError, ObjectEvent, ObjectMethod, Parameter,
    ValueKind, number_or,
};
use crate::json::{from_json_text, payload_of};
use crate::mqtt::{MqttMessage, MqttSubscription, check_filter, check_topic};
use crate::value::LuaValue;

const ON_MESSAGE: u16 = 1;

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 999,
    name: "MqttTopic",
    version: 1,
    features: &[
        Feature::text(0, "Topic").settable(),
        Feature::new(1, "Message", ValueKind::Any, FeatureAccess::Get),
        Feature::text(2, "MessageTopic"),
    ],
    methods: &[
        ObjectMethod::new(0, "Subscribe"),
        ObjectMethod::new(1, "Unsubscribe"),
        ObjectMethod::with(
            10,
            "Publish",
            &[
                Parameter::new("Topic", ValueKind::Text, ""),
                Parameter::new("Message", ValueKind::Any, ""),
                Parameter::new("Retain", ValueKind::Number, ""),
            ],
        ),
    ],
    events: &[ObjectEvent::new(0, "OnInit"), ObjectEvent::new(ON_MESSAGE, "OnMessage")],
    create: |_| Box::new(MqttTopic::default()),
};

#[derive(Default)]
struct MqttTopic {
    filter: String,
    subscription: Option<MqttSubscription>,
    /// The last message.
    current: Option<MqttMessage>,
}

impl MqttTopic {
    fn subscribe(&mut self, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        check_filter(&self.filter).map_err(|reason| ObjectError::Failed { reason })?;
        let waker = context.waker();
        self.subscription = Some(context.world.network.mqtt.subscribe(&self.filter, waker));
        Ok(())
    }
}

impl CluObject for MqttTopic {
    fn get(&self, index: u16, _context: &mut ObjectContext<'_>) -> LuaValue {
        match (index, &self.current) {
            (0, _) => self.filter.as_str().into(),
            (_, None) => LuaValue::Nil,
            (1, Some(message)) => from_json_text(&message.payload),
            (_, Some(message)) => message.topic.as_str().into(),
        }
    }

    /// A new topic applies at once to an object that is subscribed.
    fn set(&mut self, _index: u16, value: LuaValue, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        let LuaValue::Text(filter) = value else { return Err(ObjectError::Unavailable) };
        if self.subscription.is_some() {
            check_filter(&filter).map_err(|reason| ObjectError::Failed { reason })?;
        }
        let is_changed = filter != self.filter;
        self.filter = filter;
        if is_changed && self.subscription.is_some() {
            self.subscribe(context)?;
        }
        Ok(())
    }

    fn call(
        &mut self,
        index: u16,
        arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        match (index, arguments) {
            (0, _) if self.subscription.is_some() => {}
            (0, _) => self.subscribe(context)?,
            (1, _) => self.subscription = None,
            (_, [topic, message, ..]) => {
                let topic = if let LuaValue::Text(topic) = topic { topic.clone() } else { self.filter.clone() };
                let is_retained = number_or(arguments, 2, 0.0) != 0.0;
                let message = MqttMessage { topic, payload: payload_of(message), is_retained };
                let checked = check_topic(&message.topic);
                checked
                    .and_then(|()| context.world.network.mqtt.publish(message))
                    .map_err(|reason| ObjectError::Failed { reason })?;
            }
            _ => return Err(ObjectError::Failed { reason: "Publish needs a topic and a message".into() }),
        }
        Ok(LuaValue::Nil)
    }

    fn init(&mut self, context: &mut ObjectContext<'_>) {
        context.fire(0);
    }

    fn woken(&mut self, context: &mut ObjectContext<'_>) {
        let Some(subscription) = &self.subscription else { return };
        if !context.is_pending(ON_MESSAGE) {
            let Some(message) = subscription.take() else { return };
            self.current = Some(message);
            context.fire(ON_MESSAGE);
        }
        // The next message waits for a turn after the handlers of this one.
        context.waker().wake();
    }
}
