//! Requests in a home: "How warm is it in Oslo?" is to become the call `get_weather(city: "Oslo")`, and thanks no call.
//!
//! The demo model was not trained on tool calls, and its chat template does not show tools. The prompt lists them in a
//! few words, and shows eighteen requests with their calls.

use serde_json::{Value, json};

use crate::{
    draw::SeededDraw,
    share::{Share, SharedOut},
};

const SYSTEM: &str = "You control a home by calling tools. Answer each request with the call of one tool. If no tool \
                      is needed, answer in a few words.\n\nget_weather(city)\nset_timer(minutes)\nset_light(room, \
                      on)\nadd_item(item)\nplay_music(artist)";

/// What a request asks for.
#[derive(Debug, Clone, Copy)]
enum HomeKind {
    Weather,
    Timer,
    LightOn,
    LightOff,
    Item,
    Music,
    /// Thanks, for which no tool is to be called.
    Thanks,
}

/// How often each kind comes, in 24 tasks.
const KINDS: [(HomeKind, usize); 7] = [
    (HomeKind::Weather, 4),
    (HomeKind::Timer, 4),
    (HomeKind::LightOn, 3),
    (HomeKind::LightOff, 3),
    (HomeKind::Item, 4),
    (HomeKind::Music, 4),
    (HomeKind::Thanks, 2),
];
const N_KINDS: usize = 24;

const CITIES: SharedOut = SharedOut {
    train: &[
        "Oslo", "Cairo", "Paris", "Rome", "Berlin", "Tokyo", "London", "Vienna", "Prague",
        "Boston", "Athens", "Dublin", "Delhi", "Sydney", "Chicago", "Warsaw", "Lima", "Geneva",
        "Toronto", "Seoul", "Venice", "Dallas", "Munich", "Havana", "Lyon", "Porto", "Krakow",
        "Bergen", "Kyoto", "Nairobi", "Seattle", "Houston", "Quebec", "Perth", "Bombay", "Manila",
        "Jakarta", "Tunis", "Seville", "Turin", "Leipzig", "Cologne", "Glasgow", "Belfast", "Riga",
        "Sofia", "Zagreb", "Malaga", "Phoenix", "Detroit",
    ],
    held_out: &[
        "Stockholm",
        "Copenhagen",
        "Barcelona",
        "Amsterdam",
        "Marseille",
        "Florence",
        "Istanbul",
        "Edinburgh",
        "Atlanta",
        "Melbourne",
        "Bangkok",
        "Salzburg",
    ],
};

const MINUTES: SharedOut = SharedOut {
    train: &[
        "2", "3", "5", "7", "8", "10", "12", "14", "15", "18", "20", "22", "24", "30", "32", "35",
        "36", "40", "45", "50", "55", "60", "75", "80", "90",
    ],
    held_out: &[
        "19", "23", "27", "29", "31", "34", "37", "43", "44", "46", "52", "56", "63", "72", "85",
    ],
};

const ROOMS: SharedOut = SharedOut {
    train: &[
        "kitchen",
        "cellar",
        "garage",
        "office",
        "bathroom",
        "living room",
        "dining room",
        "nursery",
        "library",
        "workshop",
        "guest room",
        "hallway",
        "balcony",
        "terrace",
        "corridor",
        "staircase",
        "closet",
        "gym",
        "shed",
        "loft",
        "gallery",
        "sauna",
        "storeroom",
        "veranda",
        "cabin",
        "dressing room",
        "music room",
        "classroom",
        "chapel",
        "stable",
        "tower",
        "courtyard",
        "barn",
        "lounge",
        "entrance",
        "greenhouse",
    ],
    held_out: &[
        "den",
        "pool",
        "spare room",
        "sunroom",
        "boathouse",
        "canteen",
        "reading room",
    ],
};

const ITEMS: SharedOut = SharedOut {
    train: &[
        "milk",
        "rice",
        "butter",
        "bread",
        "sugar",
        "coffee",
        "apples",
        "salt",
        "cheese",
        "tea",
        "eggs",
        "flour",
        "bananas",
        "pasta",
        "onions",
        "candles",
        "tomatoes",
        "oil",
        "yoghurt",
        "toothpaste",
        "batteries",
        "carrots",
        "honeydew",
        "cherries",
        "grapes",
        "mushrooms",
        "peppers",
        "noodles",
        "cookies",
        "pears",
        "plums",
        "almonds",
        "cucumbers",
        "olives",
        "sausages",
        "napkins",
        "matches",
        "biscuits",
        "walnuts",
        "raisins",
        "spinach",
        "ham",
        "beef",
        "fish",
        "cereal",
        "chocolate",
        "detergent",
        "strawberries",
    ],
    held_out: &[
        "cabbage", "yeast", "cocoa", "melons", "tissues", "lettuce", "syrup", "nuts", "ketchup",
        "lamb", "peas", "shrimps",
    ],
};

const ARTISTS: SharedOut = SharedOut {
    train: &[
        "Queen",
        "Madonna",
        "Bach",
        "Abba",
        "Elvis",
        "Beethoven",
        "Prince",
        "Coldplay",
        "Nirvana",
        "Vivaldi",
        "Chopin",
        "Sting",
        "Rihanna",
        "Johnny Cash",
        "Miles Davis",
        "Metallica",
        "Elton John",
        "Bob Dylan",
        "Handel",
        "Blondie",
        "Bruce Springsteen",
        "Frank Sinatra",
        "Ella Fitzgerald",
        "Neil Young",
        "Tom Waits",
        "Joni Mitchell",
        "Santana",
        "Aretha Franklin",
        "Ray Charles",
        "Stevie Wonder",
        "Verve",
        "Dvorak",
        "Liszt",
        "Mahler",
        "Puccini",
        "Genesis",
        "Iron Maiden",
        "Van Halen",
        "Leonard Cohen",
        "Nina Simone",
        "Louis Armstrong",
        "Brahms",
    ],
    held_out: &[
        "Eminem",
        "Debussy",
        "Dolly Parton",
        "Muse",
        "Tchaikovsky",
        "Rod Stewart",
        "Lady Gaga",
        "Ravel",
        "Deep Purple",
        "Billie Holiday",
        "Blur",
    ],
};

/// Wordings; `{}` stands for the value.
const WEATHER: SharedOut = SharedOut {
    train: &[
        "How warm is it in {}?",
        "What is the weather like in {}?",
        "Do I need a coat in {}?",
        "Is the sun out in {} today?",
        "Weather in {}, please.",
        "I am flying to {}, how is the weather?",
        "Will it rain in {}?",
        "Tell me the temperature in {}.",
    ],
    held_out: &[
        "How hot is it in {} today?",
        "Is it cloudy in {}?",
        "Check the weather for {}.",
        "What are the temperatures in {}?",
    ],
};

const TIMER: SharedOut = SharedOut {
    train: &[
        "Start a timer of {} minutes.",
        "Wake me in {} minutes.",
        "Tell me when {} minutes are over.",
        "Timer, {} minutes.",
        "My cake needs {} minutes.",
        "Call me in {} minutes.",
        "I have {} minutes, let me know when they are up.",
        "Give me {} minutes.",
    ],
    held_out: &[
        "Set the alarm to {} minutes.",
        "The soup has to cook for {} minutes.",
        "Let me know in {} minutes.",
        "A timer of {} minutes, please.",
    ],
};

const LIGHT_ON: SharedOut = SharedOut {
    train: &[
        "Turn on the light in the {}.",
        "Light in the {}, please.",
        "Switch the {} light on.",
        "I cannot see anything in the {}.",
        "Make it bright in the {}.",
        "We need light in the {}.",
        "Lamps on in the {}.",
        "Can you switch the light on in the {}?",
        "Somebody is in the {}, turn the light on.",
        "The {} has no light, turn it on.",
    ],
    held_out: &[
        "Could you light up the {}?",
        "Please turn the {} light on.",
        "I need some light in the {}.",
    ],
};

const LIGHT_OFF: SharedOut = SharedOut {
    train: &[
        "Turn off the light in the {}.",
        "Switch the {} light off.",
        "No more light in the {}.",
        "The {} is too bright.",
        "Nobody is in the {}, turn the light off.",
        "Lamps off in the {}.",
        "Can you switch the light off in the {}?",
        "I have left the {}, light off.",
        "Make it dark in the {}.",
        "Put out the light in the {}.",
    ],
    held_out: &[
        "Please turn the {} light off.",
        "The light in the {} can go off.",
        "Switch off the light in the {}.",
    ],
};

const ITEM: SharedOut = SharedOut {
    train: &[
        "Put {} on the shopping list.",
        "I have run out of {}.",
        "Add {} to the list.",
        "There is no {} left.",
        "Do not let me forget to buy {}.",
        "We should get some {}.",
        "Note that we need {}.",
        "Please remember {} for the shopping.",
    ],
    held_out: &[
        "Please buy {}.",
        "Add some {} to my list.",
        "I forgot the {}, note it.",
        "Next time we shop, get {}.",
    ],
};

const MUSIC: SharedOut = SharedOut {
    train: &[
        "Play something by {}.",
        "Let us listen to {}.",
        "Music by {}, please.",
        "I would like to hear {}.",
        "Put on a song of {}.",
        "Start an album by {}.",
        "Can we have some {} in here?",
        "Play {}.",
    ],
    held_out: &[
        "Let me hear {}.",
        "Something by {} would be nice.",
        "Play the best of {}.",
        "Put {} on.",
    ],
};

const THANKS: SharedOut = SharedOut {
    train: &[
        "Thanks, that is all.",
        "Thank you very much.",
        "Great, thank you!",
        "That was quick, thank you.",
        "Thanks a lot!",
        "I thank you.",
        "Thank you, dear.",
        "Perfect, thanks.",
    ],
    held_out: &[
        "Thank you, bye.",
        "Thanks, that was great.",
        "Wonderful, thanks.",
        "Thank you for the help!",
        "Okay, thank you.",
        "Thanks, you are kind.",
    ],
};

/// Returns the tools in OpenAI's form.
pub fn tools() -> Value {
    let tool = |name: &str, description: &str, properties: &Value| {
        let required: Vec<&String> = properties.as_object().expect("an object").keys().collect();
        json!({"type": "function", "function": {"name": name, "description": description, "parameters": {
            "type": "object", "properties": properties, "required": required, "additionalProperties": false}}})
    };
    let text = || json!({"type": "string"});
    json!([
        tool(
            "get_weather",
            "Tells the weather of a city.",
            &json!({"city": text()})
        ),
        tool(
            "set_timer",
            "Starts a timer.",
            &json!({"minutes": {"type": "integer"}})
        ),
        tool(
            "set_light",
            "Turns the light of a room on or off.",
            &json!({"room": text(), "on": {"type": "boolean"}})
        ),
        tool(
            "add_item",
            "Adds an item to the shopping list.",
            &json!({"item": text()})
        ),
        tool(
            "play_music",
            "Plays music of an artist.",
            &json!({"artist": text()})
        ),
    ])
}

/// Returns the task with number `i`, without its id.
pub fn task(i: usize, share: Share, draw: &mut SeededDraw) -> Value {
    let (prompt, expect) = kind(i).request(share, draw);
    let earlier: Vec<Value> = earlier()
        .into_iter()
        .map(|(user, assistant)| json!({"user": user, "assistant": assistant}))
        .collect();
    json!({
        "system": SYSTEM, "earlier": earlier, "prompt": prompt, "tools": "tools.json", "expect": expect,
        "max_turns": 1, "max_tokens": 40, "temperature": 1,
    })
}

fn kind(i: usize) -> HomeKind {
    // 7 has no common factor with 24: neighbours are of different kinds.
    let mut place = i * 7 % N_KINDS;
    for (kind, n) in KINDS {
        if place < n {
            return kind;
        }
        place -= n;
    }
    HomeKind::Thanks
}

fn call(name: &str, arguments: &Value) -> String {
    // As Python's json writes it, which the model has read most.
    let arguments: Vec<String> = arguments
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("\"{name}\": {value}"))
        .collect();
    format!(
        "<tool_call>{{\"name\": \"{name}\", \"arguments\": {{{}}}}}</tool_call>",
        arguments.join(", ")
    )
}

/// The exchanges of the prompt.
fn earlier() -> [(&'static str, String); 18] {
    // pair: a request and its reply
    let thanks = || "You are welcome.".to_owned();
    let weather = |city: &str| call("get_weather", &json!({"city": city}));
    let timer = |minutes: u32| call("set_timer", &json!({"minutes": minutes}));
    let item = |item: &str| call("add_item", &json!({"item": item}));
    let music = |artist: &str| call("play_music", &json!({"artist": artist}));
    let light = |room: &str, on: bool| {
        format!(
            "<tool_call>{{\"name\": \"set_light\", \"arguments\": {{\"room\": \"{room}\", \"on\": {on}}}}}</tool_call>"
        )
    };
    [
        ("Is it raining in Lisbon?", weather("Lisbon")),
        ("Count down four minutes.", timer(4)),
        ("Turn the light in the attic on.", light("attic", true)),
        ("Write soap on the list.", item("soap")),
        ("I want to hear Mozart.", music("Mozart")),
        ("Thank you!", thanks()),
        ("Does it snow in Moscow?", weather("Moscow")),
        ("Make it dark in the bedroom.", light("bedroom", false)),
        ("Remind me in 25 minutes.", timer(25)),
        ("We need honey.", item("honey")),
        ("Some songs by Adele, please.", music("Adele")),
        ("The hall is too dark.", light("hall", true)),
        ("Switch off the lamps of the porch.", light("porch", false)),
        ("Tell me about the sky over Nice.", weather("Nice")),
        ("Beep after 70 minutes.", timer(70)),
        ("Also get some mustard.", item("mustard")),
        ("Thanks, good work.", thanks()),
        ("Anything by Wagner will do.", music("Wagner")),
    ]
}

// === impl HomeKind ===

impl HomeKind {
    /// Returns a request, and what the track is to expect.
    fn request(self, share: Share, draw: &mut SeededDraw) -> (String, Value) {
        let (wordings, values) = match self {
            Self::Weather => (WEATHER, CITIES),
            Self::Timer => (TIMER, MINUTES),
            Self::LightOn => (LIGHT_ON, ROOMS),
            Self::LightOff => (LIGHT_OFF, ROOMS),
            Self::Item => (ITEM, ITEMS),
            Self::Music => (MUSIC, ARTISTS),
            Self::Thanks => (THANKS, CITIES),
        };
        let value = values.pick(share, draw);
        let prompt = wordings.pick(share, draw).replace("{}", value);
        let expect = match self.call(value) {
            Some((name, arguments)) => json!({"calls": [{"name": name, "arguments": arguments}]}),
            None => json!({"calls": [], "answer": "welcome"}),
        };
        (prompt, expect)
    }

    /// Returns the tool and the arguments that are right.
    fn call(self, value: &str) -> Option<(&'static str, Value)> {
        Some(match self {
            Self::Weather => ("get_weather", json!({"city": value})),
            Self::Timer => {
                let minutes: u32 = value.parse().expect("a number of minutes");
                ("set_timer", json!({"minutes": minutes}))
            }
            Self::LightOn => ("set_light", json!({"room": written(value), "on": true})),
            Self::LightOff => ("set_light", json!({"room": written(value), "on": false})),
            Self::Item => ("add_item", json!({"item": written(value)})),
            Self::Music => ("play_music", json!({"artist": value})),
            Self::Thanks => return None,
        })
    }
}

/// A word as it was said, or with a capital letter.
fn written(value: &str) -> Value {
    let capital = value[..1].to_uppercase() + &value[1..];
    json!({"one_of": [value, capital]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_share_of_the_tasks() {
        let mut n = [0; N_KINDS];
        (0..N_KINDS).for_each(|i| n[i * 7 % N_KINDS] += 1);
        assert!(n.iter().all(|n| *n == 1));
        assert_eq!(KINDS.iter().map(|(_, n)| n).sum::<usize>(), N_KINDS);
    }

    #[test]
    fn a_request_has_the_call_that_fulfils_it() {
        let mut draw = SeededDraw::new(3);
        let (prompt, expect) = HomeKind::LightOff.request(Share::HeldOut, &mut draw);
        let room = expect["calls"][0]["arguments"]["room"]["one_of"][0].as_str();
        assert!(prompt.contains(room.unwrap()), "{prompt}");
        assert_eq!(expect["calls"][0]["arguments"]["on"], false);
        let said = call("set_timer", &json!({"minutes": 4}));
        let expected =
            r#"<tool_call>{"name": "set_timer", "arguments": {"minutes": 4}}</tool_call>"#;
        assert_eq!(said, expected);
    }
}
