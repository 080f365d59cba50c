from fastapi import APIRouter


def router(server):
    return APIRouter()
