"""`hornbook serve`: models behind HTTP, with a page. Needs the packages of `hornbook[serve]`.

`models.py` has what each loaded model can do, `engine.py` queues and batches requests, `api.py` and `openai.py` are
the routes, `server.py` is the application and its process, and `page/` is what the browser gets.
"""
