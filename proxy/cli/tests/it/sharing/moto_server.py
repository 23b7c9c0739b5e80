"""Serves S3 from moto until standard input ends. Requests must be signed by a user who may only use one prefix."""

import json
import os
import sys

# These requests are not checked: the four below.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"

import boto3
from moto.server import ThreadedMotoServer

POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": "arn:aws:s3:::team-skills",
        },
        {
            "Effect": "Allow",
            "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"],
            "Resource": "arn:aws:s3:::team-skills/skills/*",
        },
    ],
}

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
endpoint = "http://%s:%s" % server.get_host_and_port()
anybody = boto3.Session("x", "x", region_name="us-east-1")
iam = anybody.client("iam", endpoint_url=endpoint)
anybody.client("s3", endpoint_url=endpoint).create_bucket(Bucket="team-skills")
iam.create_user(UserName="metaclaw")
iam.put_user_policy(
    UserName="metaclaw", PolicyName="skills", PolicyDocument=json.dumps(POLICY)
)
key = iam.create_access_key(UserName="metaclaw")["AccessKey"]
told = {
    "endpoint": endpoint,
    "id": key["AccessKeyId"],
    "secret": key["SecretAccessKey"],
}
print(json.dumps(told), flush=True)
sys.stdin.read()
