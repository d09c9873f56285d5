def handle(payload):
    return {"text": "hello " + payload["name"]}


def shout(payload):
    return {"text": payload["text"].upper()}


def split(payload):
    return [{"text": word} for word in payload["text"].split()]
